#include "greedy.h"

/* As in `penstock.writing.greedy`. */
static const double BARE = 0.6; /* what a value without plain words beside it is worth */
enum { WORDS = 2, LEAST_ROOM = 6 };
static const double MOST_CHARACTERS_PER_TOKEN = 5.5;
static const double NOTHING = 1e-9;

/* Leaves the function where the call did not come to its end. */
#define TRY(call)                  \
    do {                           \
        Outcome outcome = (call);  \
        if (outcome != 1) {        \
            return outcome;        \
        }                          \
    } while (0)

/* ---- Candidates and sources by their numbers ---------------------------------------------------------------------- */

/* Where the search for a number begins in a table of so many slots: see `values.c`. Numbers that follow each other are spread. */
static inline size_t slot_of(int32_t number, size_t slots)
{
    return (size_t)(((uint64_t)((uint32_t)number * 0x9e3779b1u) * slots) >> 32);
}

Candidate *greedy_find(const Greedy *greedy, int32_t number)
{
    size_t slots = greedy->candidate_slots.count;
    if (slots == 0) {
        return NULL;
    }
    for (size_t slot = slot_of(number, slots); greedy->candidate_slots.at[slot]; slot = slot + 1 == slots ? 0 : slot + 1) {
        Candidate *candidate = &greedy->candidates.at[greedy->candidate_slots.at[slot] - 1];
        if (candidate->number == number) {
            return candidate;
        }
    }
    return NULL;
}

static Source *find_source(const Greedy *greedy, int32_t number)
{
    size_t slots = greedy->source_slots.count;
    if (slots == 0) {
        return NULL;
    }
    for (size_t slot = slot_of(number, slots); greedy->source_slots.at[slot]; slot = slot + 1 == slots ? 0 : slot + 1) {
        Source *source = &greedy->sources.at[greedy->source_slots.at[slot] - 1];
        if (source->number == number) {
            return source;
        }
    }
    return NULL;
}

static void put_slot(uint32_t *slots, size_t count, int32_t number, uint32_t place)
{
    size_t slot = slot_of(number, count);
    while (slots[slot]) {
        slot = slot + 1 == count ? 0 : slot + 1;
    }
    slots[slot] = place + 1;
}

/* Makes room for one more, so that at least half of the slots are empty. */
#define MAKE_SLOTS(rows, slots)                                                                \
    do {                                                                                       \
        if (((rows)->count + 1) * 2 > (slots)->count) {                                        \
            size_t wanted = (slots)->count * 2 + 1024;                                         \
            if (!rows_reserve(slots, wanted - (slots)->count)) {                               \
                return 0;                                                                      \
            }                                                                                  \
            (slots)->count = wanted;                                                           \
            memset((slots)->at, 0, wanted * sizeof(*(slots)->at));                             \
            for (size_t place = 0; place < (rows)->count; place++) {                           \
                put_slot((slots)->at, wanted, (rows)->at[place].number, (uint32_t)place);      \
            }                                                                                  \
        }                                                                                      \
    } while (0)

/* Returns the source, a new one if need be; NULL where memory is out. */
static Source *make_source(Greedy *greedy, int32_t number)
{
    Source *known = find_source(greedy, number);
    if (known != NULL) {
        return known;
    }
    MAKE_SLOTS(&greedy->sources, &greedy->source_slots);
    Source source = {.number = number};
    if (!rows_push(&greedy->sources, source)) {
        return NULL;
    }
    put_slot(greedy->source_slots.at, greedy->source_slots.count, number, (uint32_t)greedy->sources.count - 1);
    return &greedy->sources.at[greedy->sources.count - 1];
}

bool greedy_set_header(Greedy *greedy, int32_t number, int32_t tokens)
{
    Source *source = make_source(greedy, number);
    if (source != NULL) {
        source->header_tokens = tokens;
    }
    return source != NULL;
}

bool greedy_add(Greedy *greedy, int32_t number, int32_t source_number, int32_t cost_tokens, const int32_t *values, size_t count,
                bool has_parts, int8_t plain_words)
{
    Source *source = make_source(greedy, source_number);
    if (source == NULL) {
        return false;
    }
    MAKE_SLOTS(&greedy->candidates, &greedy->candidate_slots);
    Candidate candidate = {
        .number = number,
        .source = (uint32_t)(source - greedy->sources.at),
        .cost_tokens = cost_tokens,
        .first = (uint32_t)greedy->values.count,
        .count = (uint32_t)count,
        .plain_words = plain_words < 0 ? PLAIN_UNKNOWN : plain_words,
        .has_parts = has_parts,
    };
    if (greedy->values.count + count > UINT32_MAX || !rows_reserve(&greedy->values, count) ||
        !rows_push(&greedy->candidates, candidate)) {
        return false;
    }
    if (count) {
        memcpy(greedy->values.at + greedy->values.count, values, count * sizeof(*values));
    }
    greedy->values.count += count;
    put_slot(greedy->candidate_slots.at, greedy->candidate_slots.count, number, (uint32_t)greedy->candidates.count - 1);
    return true;
}

/* ---- What an excerpt would add ------------------------------------------------------------------------------------- */

/* How far a value is covered. */
static inline double level_of(const Greedy *greedy, int32_t value)
{
    return greedy->raised_bare[value] ? BARE : (double)greedy->covered[value];
}

/* The weight of what is not covered of a value. */
static inline double lack_of(const Greedy *greedy, int32_t value)
{
    return (double)greedy->weights[value] * (1.0 - level_of(greedy, value));
}

static double lack_of_all(const Greedy *greedy, const Candidate *candidate)
{
    double lack = 0.0;
    for (uint32_t place = candidate->first; place < candidate->first + candidate->count; place++) {
        lack += lack_of(greedy, greedy->values.at[place]);
    }
    return lack;
}

int64_t greedy_price(const Greedy *greedy, const Candidate *candidate)
{
    const Source *source = &greedy->sources.at[candidate->source];
    return (int64_t)candidate->cost_tokens + (source->is_open ? 0 : source->header_tokens);
}

/* The excerpt right before this one (step -1) or behind it (1), where it is of the same source and chosen, else NULL. */
static Candidate *find_chosen(const Greedy *greedy, const Candidate *candidate, int32_t step)
{
    Candidate *other = greedy_find(greedy, candidate->number + step);
    return other != NULL && other->is_chosen && other->source == candidate->source ? other : NULL;
}

static Outcome ask_plain_words(Greedy *greedy, Candidate *candidate, int *words)
{
    if (candidate->plain_words == PLAIN_UNKNOWN) {
        int8_t told = 0;
        if (!greedy->ask.plain_words(greedy->ask.context, candidate->number, &told)) {
            return -1;
        }
        candidate->plain_words = told;
    }
    *words = candidate->plain_words;
    return 1;
}

/* Plain words in the excerpt and in those beside it that are chosen. */
static Outcome words_around(Greedy *greedy, Candidate *candidate, int *words)
{
    TRY(ask_plain_words(greedy, candidate, words));
    for (int32_t step = -1; step <= 1 && *words < WORDS; step += 2) {
        Candidate *beside = find_chosen(greedy, candidate, step);
        if (beside != NULL) {
            int more = 0;
            TRY(ask_plain_words(greedy, beside, &more));
            *words += more;
        }
    }
    return 1;
}

/* The weight that an excerpt would add per token now. */
static Outcome density_of(Greedy *greedy, Candidate *candidate, double *density)
{
    int own = 0, together = 0;
    TRY(ask_plain_words(greedy, candidate, &own));
    Candidate *beside[2] = {find_chosen(greedy, candidate, -1), find_chosen(greedy, candidate, 1)};
    together = own;
    for (int side = 0; side < 2 && own < WORDS; side++) {
        if (beside[side] != NULL) {
            int more = 0;
            TRY(ask_plain_words(greedy, beside[side], &more));
            together += more;
        }
    }
    double gain = greedy->worth == NULL ? 0.0 : (double)greedy->worth[candidate->number];
    const int32_t *values = greedy->values.at + candidate->first;
    if (together >= WORDS) {
        for (uint32_t place = 0; place < candidate->count; place++) {
            gain += lack_of(greedy, values[place]);
        }
    } else {
        for (uint32_t place = 0; place < candidate->count; place++) {
            double level = level_of(greedy, values[place]);
            if (level < BARE) {
                gain += (double)greedy->weights[values[place]] * (BARE - level);
            }
        }
    }
    for (int side = 0; side < 2 && own > 0; side++) { /* its words may be those that a chosen one beside it lacks */
        if (beside[side] != NULL) {
            int around = 0, inside = 0;
            TRY(words_around(greedy, beside[side], &around));
            TRY(ask_plain_words(greedy, beside[side], &inside));
            if (around < WORDS && inside + own >= WORDS) {
                gain += lack_of_all(greedy, beside[side]);
            }
        }
    }
    *density = gain / (double)greedy_price(greedy, candidate);
    return 1;
}

/* ---- The heap ---------------------------------------------------------------------------------------------------- */

static inline bool comes_before(const Entry *one, const Entry *other)
{
    return one->key < other->key || (one->key == other->key && one->number < other->number);
}

static bool push_entry(Greedy *greedy, double key, int32_t number)
{
    Entry entry = {key, number};
    if (!rows_push(&greedy->heap, entry)) {
        return false;
    }
    Entry *heap = greedy->heap.at;
    size_t place = greedy->heap.count - 1;
    while (place > 0 && comes_before(&entry, &heap[(place - 1) / 2])) {
        heap[place] = heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    heap[place] = entry;
    return true;
}

static Entry pop_entry(Greedy *greedy)
{
    Entry *heap = greedy->heap.at, top = heap[0], last = heap[--greedy->heap.count];
    size_t count = greedy->heap.count, place = 0;
    for (size_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && comes_before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!comes_before(&heap[child], &last)) {
            break;
        }
        heap[place] = heap[child];
        place = child;
    }
    if (count) {
        heap[place] = last;
    }
    return top;
}

Outcome greedy_begin(Greedy *greedy, const int32_t *pool, const float *gains, size_t count)
{
    greedy->heap.count = 0;
    greedy->round++;
    for (size_t place = 0; place < count; place++) {
        Candidate *candidate = greedy_find(greedy, pool[place]);
        if (candidate->is_chosen || candidate->round == greedy->round) { /* or given twice */
            continue;
        }
        candidate->round = greedy->round;
        Source *source = &greedy->sources.at[candidate->source];
        if (source->round != greedy->round) {
            source->round = greedy->round;
            source->siblings = 0;
        }
        candidate->sibling = source->siblings;
        source->siblings = (uint32_t)(candidate - greedy->candidates.at) + 1;
        double density = (double)gains[place] / (double)greedy_price(greedy, candidate);
        if (candidate->has_parts) {
            TRY(density_of(greedy, candidate, &density));
        }
        if (!push_entry(greedy, -density, candidate->number)) {
            return 0;
        }
    }
    return 1;
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

/* Counts the values of an excerpt as covered so far, where they are not further already. */
static void raise_levels(Greedy *greedy, const Candidate *candidate, bool is_bare)
{
    double level = is_bare ? BARE : 1.0;
    for (uint32_t place = candidate->first; place < candidate->first + candidate->count; place++) {
        int32_t value = greedy->values.at[place];
        if (level > level_of(greedy, value)) {
            greedy->covered[value] = (float)level;
            greedy->raised_bare[value] = is_bare;
        }
    }
}

void greedy_notice(Greedy *greedy, const int32_t *values, size_t count)
{
    for (size_t place = 0; place < count; place++) {
        if (values[place] >= 0 && (size_t)values[place] < greedy->value_count) {
            greedy->raised_bare[values[place]] = 0;
        }
    }
}

/* Chooses this excerpt; tells the plain words around it. */
static Outcome choose(Greedy *greedy, Candidate *candidate, int *words)
{
    if (!rows_push(&greedy->order, candidate->number)) {
        return 0;
    }
    greedy->tokens += greedy_price(greedy, candidate);
    greedy->sources.at[candidate->source].is_open = true;
    candidate->is_chosen = true;
    TRY(words_around(greedy, candidate, words));
    raise_levels(greedy, candidate, *words < WORDS);
    for (int32_t step = -1; step <= 1; step += 2) {
        Candidate *beside = find_chosen(greedy, candidate, step);
        if (beside != NULL) {
            int around = 0;
            TRY(words_around(greedy, beside, &around));
            if (around >= WORDS) {
                raise_levels(greedy, beside, false);
            }
        }
    }
    return 1;
}

Outcome greedy_choose(Greedy *greedy, Candidate *candidate)
{
    int words = 0;
    return choose(greedy, candidate, &words);
}

/* Puts an excerpt on the heap again, by what it would add now, unless it is chosen. */
static Outcome put_back(Greedy *greedy, Candidate *candidate)
{
    double density = 0.0;
    if (candidate->is_chosen) {
        return 1;
    }
    TRY(density_of(greedy, candidate, &density));
    return push_entry(greedy, -density, candidate->number);
}

/* Puts those beside a bare excerpt on the heap that would give it words and were not looked at yet. */
static Outcome offer_words(Greedy *greedy, const Candidate *candidate, int words)
{
    if (greedy->allowed == NULL) {
        return 1;
    }
    double lack = lack_of_all(greedy, candidate);
    int32_t number = candidate->number, source = greedy->sources.at[candidate->source].number;
    for (int32_t other = number - 1; other <= number + 1; other += 2) {
        if (other < 0 || (size_t)other >= greedy->excerpt_count || !greedy->allowed[other] ||
            greedy->source_of[other] != source || greedy_find(greedy, other) != NULL) {
            continue;
        }
        int8_t more = 0;
        if (!greedy->ask.plain_words(greedy->ask.context, other, &more)) {
            return -1;
        }
        if (words + more >= WORDS) {
            double least = 1.0 + (double)greedy->lengths[other] / MOST_CHARACTERS_PER_TOKEN;
            if (!push_entry(greedy, -lack / least, other)) {
                return 0;
            }
        }
    }
    return 1;
}

/* Chooses, and puts those back that this made worth more: neighbours, and others under the same header. */
static Outcome choose_from_heap(Greedy *greedy, Candidate *candidate)
{
    const Source *source = &greedy->sources.at[candidate->source];
    bool was_open = source->is_open;
    int words = 0;
    TRY(choose(greedy, candidate, &words));
    if (was_open) {
        for (int32_t step = -1; step <= 1; step += 2) {
            Candidate *beside = greedy_find(greedy, candidate->number + step);
            if (beside != NULL && beside->source == candidate->source) {
                TRY(put_back(greedy, beside));
            }
        }
    } else if (source->round == greedy->round) {
        for (uint32_t place = source->siblings; place; place = greedy->candidates.at[place - 1].sibling) {
            TRY(put_back(greedy, &greedy->candidates.at[place - 1]));
        }
    }
    return words < WORDS ? offer_words(greedy, candidate, words) : 1;
}

/* Takes the best from the heap; those that are too large now go to `too_large`. */
static Outcome take_best(Greedy *greedy, int64_t budget_tokens)
{
    Entry top = pop_entry(greedy);
    Candidate *candidate = greedy_find(greedy, top.number);
    if (candidate == NULL) {
        if (!greedy->ask.prepare(greedy->ask.context, top.number)) {
            return -1;
        }
        candidate = greedy_find(greedy, top.number);
    }
    if (candidate->is_chosen) {
        return 1;
    }
    double density = 0.0;
    TRY(density_of(greedy, candidate, &density));
    if (density <= NOTHING) {
        return 1;
    }
    if (greedy->heap.count && -density > greedy->heap.at[0].key) {
        return push_entry(greedy, -density, top.number);
    }
    if (greedy_price(greedy, candidate) > budget_tokens - greedy->tokens) {
        Entry entry = {-density, top.number};
        return rows_push(&greedy->too_large, entry);
    }
    bool shown = false;
    if (!greedy->ask.is_shown(greedy->ask.context, top.number, &shown)) {
        return -1;
    }
    return shown ? 1 : choose_from_heap(greedy, candidate);
}

Outcome greedy_run(Greedy *greedy, int64_t budget_tokens)
{
    greedy->too_large.count = 0;
    while (greedy->heap.count && budget_tokens - greedy->tokens > LEAST_ROOM) {
        TRY(take_best(greedy, budget_tokens));
    }
    for (size_t place = 0; place < greedy->too_large.count; place++) {
        if (!push_entry(greedy, greedy->too_large.at[place].key, greedy->too_large.at[place].number)) {
            return 0;
        }
    }
    return 1;
}

bool greedy_drop_last(Greedy *greedy)
{
    if (greedy->order.count == 0) {
        return false;
    }
    Candidate *candidate = greedy_find(greedy, greedy->order.at[--greedy->order.count]);
    candidate->is_chosen = false;
    greedy->tokens -= candidate->cost_tokens;
    return true;
}

void greedy_free(Greedy *greedy)
{
    rows_free(&greedy->candidates);
    rows_free(&greedy->sources);
    rows_free(&greedy->candidate_slots);
    rows_free(&greedy->source_slots);
    rows_free(&greedy->values);
    rows_free(&greedy->heap);
    rows_free(&greedy->too_large);
    rows_free(&greedy->order);
    PyMem_RawFree(greedy->raised_bare);
    greedy->raised_bare = NULL;
}
