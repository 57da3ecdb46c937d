#include "scoring.h"

#include "sharing.h"

#include <string.h>

/* As numpy adds: what is too large begins anew at the other end. */
static inline int32_t wrapping_sum(int32_t one, int32_t other)
{
    return (int32_t)((uint32_t)one + (uint32_t)other);
}

/* What the rows of an excerpt lack, added up as numpy does and in the same order, since a sum of fractions depends on it: eight
 * sums side by side, halves of a long run one after the other. */
typedef struct {
    const Values *values;
    const float *known; /* by value: what it lacks, if that was worked out for all of them; otherwise NULL */
    const int32_t *ids;
    bool fits; /* no value so far was outside of the values */
} Lacks;

static inline float lack_of_value(const Values *values, size_t value)
{
    float open = 1.0f - values->covered[value];
    return open * values->weights[value];
}

static inline float lack_of(Lacks *lacks, size_t row)
{
    int32_t value = lacks->ids[row];
    if (value < 0 || (size_t)value >= lacks->values->count) {
        lacks->fits = false;
        return 0.0f;
    }
    return lacks->known != NULL ? lacks->known[value] : lack_of_value(lacks->values, (size_t)value);
}

static float sum_pairwise(Lacks *lacks, size_t first, size_t count)
{
    if (count < 8) {
        float sum = 0.0f;
        for (size_t row = 0; row < count; row++) {
            sum += lack_of(lacks, first + row);
        }
        return sum;
    }
    if (count <= 128) {
        float sums[8];
        for (size_t place = 0; place < 8; place++) {
            sums[place] = lack_of(lacks, first + place);
        }
        size_t row = 8, whole = count - count % 8;
        for (; row < whole; row += 8) {
            for (size_t place = 0; place < 8; place++) {
                sums[place] += lack_of(lacks, first + row + place);
            }
        }
        float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        for (; row < count; row++) {
            sum += lack_of(lacks, first + row);
        }
        return sum;
    }
    size_t half = count / 2;
    half -= half % 8;
    return sum_pairwise(lacks, first, half) + sum_pairwise(lacks, first + half, count - half);
}

/* `numpy.add.reduceat` begins with the first row and adds the sum of the others to it. */
static inline float sum_run(Lacks *lacks, size_t first, size_t after)
{
    if (first == after) {
        return 0.0f;
    }
    float sum = lack_of(lacks, first);
    return after - first > 1 ? sum + sum_pairwise(lacks, first + 1, after - first - 1) : sum;
}

bool sum_lacks(const Runs *excerpts, const Values *values, const int32_t *numbers, size_t count, float *sums)
{
    Lacks lacks = {values, NULL, excerpts->rows, true};
    for (size_t place = 0; place < count && lacks.fits; place++) {
        int32_t number = numbers[place];
        size_t first, after;
        if (number < 0 || (size_t)number >= excerpts->count || !find_run(excerpts, (size_t)number, &first, &after)) {
            return false;
        }
        sums[place] = sum_run(&lacks, first, after);
    }
    return lacks.fits;
}

/* Excerpts and their sums. */
typedef struct {
    const Runs *excerpts;
    const uint8_t *allowed;
    Lacks lacks[WORKERS];
    float *sums;
} AllowedSums;

static void sum_part(void *work, size_t part, int worker)
{
    AllowedSums *all = work;
    Lacks *lacks = &all->lacks[worker];
    size_t number = begin_of_part(all->excerpts->count, part, PARTS), end = begin_of_part(all->excerpts->count, part + 1, PARTS);
    for (; number < end && lacks->fits; number++) {
        size_t first, after;
        if (!all->allowed[number]) {
            continue;
        }
        if (!find_run(all->excerpts, number, &first, &after)) {
            lacks->fits = false;
            return;
        }
        all->sums[number] = sum_run(lacks, first, after);
    }
}

bool sum_allowed_lacks(const Runs *excerpts, const Values *values, const uint8_t *allowed, float *known, float *sums)
{
    for (size_t value = 0; value < values->count; value++) {
        known[value] = lack_of_value(values, value);
    }
    Lacks lacks = {values, known, excerpts->rows, true};
    AllowedSums all = {excerpts, allowed, {lacks, lacks}, sums};
    do_parts(sum_part, &all, PARTS, excerpts->row_count >= SHARED_FROM);
    return all.lacks[0].fits && all.lacks[1].fits;
}

/* One block of values, whose answers fit into the processor's caches. */
static bool add_block(const Trees *trees, const uint8_t *answers, size_t count, int32_t *totals)
{
    uint16_t leaf[AT_ONCE];
    for (size_t tree = 0; tree < trees->asked.count; tree++) {
        size_t first, after, first_leaf, after_leaf;
        if (!find_run(&trees->asked, tree, &first, &after) || !find_run(&trees->leaves, tree, &first_leaf, &after_leaf) ||
            after - first > 16 || after_leaf - first_leaf != (size_t)1 << (after - first)) {
            return false; /* a tree has as many leaves as its questions have answers */
        }
        memset(leaf, 0, sizeof leaf);
        for (size_t row = first; row < after; row++) {
            int32_t question = trees->asked.rows[row];
            if (question < 0 || (size_t)question >= trees->question_count) {
                return false;
            }
            const uint8_t *answer = answers + (size_t)question * AT_ONCE;
            for (size_t place = 0; place < AT_ONCE; place++) {
                leaf[place] = (uint16_t)(leaf[place] << 1 | answer[place]);
            }
        }
        const int32_t *leaves = trees->leaves.rows + first_leaf;
        for (size_t place = 0; place < count; place++) {
            totals[place] = wrapping_sum(totals[place], leaves[leaf[place]]);
        }
    }
    return true;
}

/* Values that come to leaves. */
typedef struct {
    const Trees *trees;
    const int32_t *table;
    size_t count;
    uint8_t *answers[WORKERS];
    int32_t *totals;
    bool fits[WORKERS];
} LeafSums;

static bool add_some_leaves(const LeafSums *sums, size_t begin, size_t end, uint8_t *answers)
{
    const Trees *trees = sums->trees;
    for (size_t first = begin; first < end; first += AT_ONCE) {
        size_t some = end - first < AT_ONCE ? end - first : AT_ONCE;
        for (size_t question = 0; question < trees->question_count; question++) {
            int32_t number = trees->features[question], threshold = trees->thresholds[question];
            if (number < 0 || (size_t)number >= trees->feature_count) {
                return false;
            }
            const int32_t *feature = sums->table + (size_t)number * sums->count + first;
            uint8_t *answer = answers + question * AT_ONCE;
            for (size_t place = 0; place < some; place++) {
                answer[place] = feature[place] > threshold;
            }
        }
        if (!add_block(trees, answers, some, sums->totals + first)) {
            return false;
        }
    }
    return true;
}

static void add_part_of_leaves(void *work, size_t part, int worker)
{
    LeafSums *sums = work;
    size_t begin = begin_of_part(sums->count, part, PARTS), end = begin_of_part(sums->count, part + 1, PARTS);
    sums->fits[worker] = sums->fits[worker] && add_some_leaves(sums, begin, end, sums->answers[worker]);
}

enum { TREES_SHARED_FROM = 8192 }; /* values: each comes to dozens of leaves */

bool add_leaves(const Trees *trees, const int32_t *table, size_t count, uint8_t *answers, int32_t *totals)
{
    size_t room = trees->question_count * AT_ONCE;
    memset(answers, 0, WORKERS * room);
    LeafSums sums = {trees, table, count, {answers, answers + room}, totals, {true, true}};
    do_parts(add_part_of_leaves, &sums, PARTS, count >= TREES_SHARED_FROM);
    return sums.fits[0] && sums.fits[1];
}

/* Sources whose mentions are counted. Each worker counts in rows of its own. */
typedef struct {
    const Mentions *mentions;
    int32_t *by_voice[WORKERS];
    int32_t *last_by_voice[WORKERS];
    int32_t *flagged;
    bool fits[WORKERS];
} MentionCounts;

static bool count_some_mentions(const MentionCounts *counts, size_t begin, size_t end, int worker)
{
    const Mentions *mentions = counts->mentions;
    const Runs *sources = &mentions->sources;
    int32_t *by_voice = counts->by_voice[worker], *last_by_voice = counts->last_by_voice[worker];
    for (size_t source = begin; source < end; source++) {
        int8_t voice = mentions->voices[source];
        int32_t message = mentions->messages[source], with_flag = 0;
        size_t first, after;
        if (voice < 0 || (size_t)voice >= mentions->voice_count || !find_run(sources, source, &first, &after)) {
            return false;
        }
        for (size_t row = first; row < after; row++) {
            int32_t value = sources->rows[row];
            if (value < 0 || (size_t)value >= mentions->value_count) {
                return false;
            }
            int32_t place = mentions->place_of[value];
            with_flag += mentions->flags[value] != 0;
            if (place < 0) {
                continue;
            }
            if ((size_t)place >= mentions->place_count) {
                return false;
            }
            size_t cell = (size_t)place * mentions->voice_count + (size_t)voice;
            by_voice[cell] = wrapping_sum(by_voice[cell], 1);
            last_by_voice[cell] = message; /* in order, so that the latest stays */
        }
        counts->flagged[source] = with_flag;
    }
    return true;
}

static void count_part_of_mentions(void *work, size_t part, int worker)
{
    MentionCounts *counts = work;
    size_t sources = counts->mentions->sources.count;
    counts->fits[worker] = counts->fits[worker] && count_some_mentions(counts, begin_of_part(sources, part, PARTS),
                                                                       begin_of_part(sources, part + 1, PARTS), worker);
}

bool count_mentions(const Mentions *mentions, int32_t *others, int32_t *by_voice, int32_t *last_by_voice, int32_t *flagged)
{
    size_t cells = mentions->place_count * mentions->voice_count;
    MentionCounts counts = {mentions, {by_voice, others}, {last_by_voice, others == NULL ? NULL : others + cells}, flagged, {true, true}};
    do_parts(count_part_of_mentions, &counts, PARTS, others != NULL);
    for (size_t cell = 0; others != NULL && cell < cells; cell++) {
        if (others[cell]) {
            int32_t message = counts.last_by_voice[1][cell];
            by_voice[cell] = wrapping_sum(by_voice[cell], others[cell]);
            last_by_voice[cell] = message > last_by_voice[cell] ? message : last_by_voice[cell];
        }
    }
    return counts.fits[0] && counts.fits[1];
}

/* The first word from `first` on that is not below this one: few of many thousand words are wanted. */
static size_t find_word(const Piece *piece, size_t first, uint16_t wanted)
{
    size_t after = piece->owners.count;
    while (first < after) {
        size_t middle = first + (after - first) / 2;
        if (piece->words[middle] < wanted) {
            first = middle + 1;
        } else {
            after = middle;
        }
    }
    return first;
}

bool count_owners(const Piece *piece, const uint16_t *wanted, const int32_t *times, size_t wanted_count, int32_t *found,
                  size_t found_count)
{
    size_t word = 0;
    for (size_t place = 0; place < wanted_count; place++) {
        word = find_word(piece, word, wanted[place]);
        if (word == piece->owners.count || piece->words[word] != wanted[place]) {
            continue;
        }
        size_t first, after;
        if (!find_run(&piece->owners, word, &first, &after)) {
            return false;
        }
        for (size_t row = first; row < after; row++) {
            int32_t owner = piece->owners.rows[row];
            if (owner < 0 || (size_t)owner >= found_count) {
                return false;
            }
            found[owner] = wrapping_sum(found[owner], times[place]);
        }
    }
    return true;
}

bool count_sources(const Piece *piece, const uint16_t *wanted, size_t wanted_count, const int32_t *source_of,
                   size_t owner_count, int32_t *last, int32_t *many)
{
    size_t word = 0;
    for (size_t place = 0; place < wanted_count; place++) {
        word = find_word(piece, word, wanted[place]);
        if (word == piece->owners.count || piece->words[word] != wanted[place]) {
            continue;
        }
        size_t first, after;
        if (!find_run(&piece->owners, word, &first, &after)) {
            return false;
        }
        int32_t met = last[place], count = 0;
        for (size_t row = first; row < after; row++) {
            int32_t owner = piece->owners.rows[row];
            if (owner < 0 || (size_t)owner >= owner_count) {
                return false;
            }
            count += source_of[owner] != met;
            met = source_of[owner];
        }
        last[place] = met;
        many[place] = wrapping_sum(many[place], count);
    }
    return true;
}

/* Single precision, and halves to even numbers. */
static int32_t share_of(int32_t found, int32_t of)
{
    float steps = (float)((double)found / (double)(of ? of : 1)) * 64.0f;
    int64_t whole = (int64_t)steps; /* what is too large begins anew */
    float rest = steps - (float)whole;
    return (int32_t)(uint32_t)(whole + (rest > 0.5f || (rest == 0.5f && whole % 2 == 1)));
}

enum { FEW_WORDS = 32, MANY_VALUES = 20000 };

void make_shares(const uint8_t *of, size_t count, int32_t *found)
{
    int16_t known[FEW_WORDS][FEW_WORDS]; /* a division takes longer than a look-up, and few values have many words */
    bool is_known = count > MANY_VALUES;
    for (int32_t some = 0; is_known && some < FEW_WORDS; some++) {
        for (int32_t all = 0; all < FEW_WORDS; all++) {
            known[some][all] = (int16_t)share_of(some, all);
        }
    }
    for (size_t value = 0; value < count; value++) {
        int32_t some = found[value];
        if (is_known && (uint32_t)some < FEW_WORDS && of[value] < FEW_WORDS) {
            found[value] = known[some][of[value]];
        } else if (some != 0) {
            found[value] = share_of(some, of[value]);
        }
    }
}

/* The natural logarithm in steps, from tables; of 0, as of 1. */
static inline int32_t ln_of(const RuleRows *rows, int32_t number)
{
    uint32_t positive = number > 0 ? (uint32_t)number : 1;
    int bits = 0;
    for (uint32_t rest = positive; rest; rest >>= 1) {
        bits++;
    }
    uint32_t part = (uint32_t)(((uint64_t)positive << 11) >> bits) - LN_PARTS;
    return wrapping_sum(rows->parts[part], rows->octaves[bits]);
}

enum { LN_KNOWN = 256 };

/* Scores the values from `begin` up to `end`; `known` are the logarithms of small counts, which most are. */
static bool score_some(const RuleRows *rows, const int32_t *known, size_t begin, size_t end, int32_t *scores)
{
#define LN(number) ((uint32_t)((uint32_t)(number) < LN_KNOWN ? known[number] : ln_of(rows, number)))
    const uint32_t of_sources = (uint32_t)rows->weights[0], of_excerpts = (uint32_t)rows->weights[1];
    const uint32_t of_crowd = (uint32_t)rows->weights[2];
    for (size_t value = begin; value < end; value++) {
        int32_t message = rows->last_message[value];
        int8_t kind = rows->kinds[value];
        if (message < 0 || (size_t)message >= rows->message_count || kind < 0 || (size_t)kind >= rows->kind_count) {
            return false;
        }
        uint32_t by_places = (uint32_t)rows->recency[message] + of_sources * LN(rows->in_sources[value]) +
                             of_excerpts * LN(rows->in_excerpts[value]) + of_crowd * LN(rows->crowd[value]);
        int place = kind * CASES_OF_KIND + (rows->said[value] != 0) * 4 + (rows->said_by_assistant[value] != 0) * 2 +
                    (rows->labels[value] >> 7);
        uint32_t score = (uint32_t)((int32_t)by_places >> 10) + (uint32_t)rows->cases[place];
        int32_t of_request = rows->of_request[value], of_work = rows->of_work[value];
        if (of_request | of_work) {
            uint32_t related =
                (uint32_t)rows->weights[3] * (uint32_t)of_request + (uint32_t)rows->weights[4] * (uint32_t)of_work;
            score += (uint32_t)((int32_t)related >> 6);
        }
        scores[value] = (int32_t)score;
    }
    return true;
}

typedef struct {
    const RuleRows *rows;
    int32_t known[LN_KNOWN];
    int32_t *scores;
    bool fits[WORKERS];
} RuleScores;

static void score_part(void *work, size_t part, int worker)
{
    RuleScores *all = work;
    size_t begin = begin_of_part(all->rows->count, part, PARTS), end = begin_of_part(all->rows->count, part + 1, PARTS);
    all->fits[worker] = all->fits[worker] && score_some(all->rows, all->known, begin, end, all->scores);
}

bool score_rule(const RuleRows *rows, int32_t *scores)
{
    RuleScores all = {.rows = rows, .scores = scores, .fits = {true, true}};
    for (int32_t number = 0; number < LN_KNOWN; number++) {
        all.known[number] = ln_of(rows, number);
    }
    do_parts(score_part, &all, PARTS, rows->count >= SHARED_FROM);
    return all.fits[0] && all.fits[1];
}

enum { BY_ASSISTANT = 1, BY_CALL = 2 }; /* as in `penstock.writing.reading.Speaker` */

/* Notes which values stand in two of the assistant's own sources or more. */
static bool note_often(const FortuneRows *rows, uint8_t *often)
{
    for (size_t source = 0; source < rows->sources.count; source++) {
        size_t first, after;
        if (rows->speakers[source] != BY_ASSISTANT && rows->speakers[source] != BY_CALL) {
            continue;
        }
        if (!find_run(&rows->sources, source, &first, &after)) {
            return false;
        }
        for (size_t row = first; row < after; row++) {
            int32_t value = rows->sources.rows[row];
            if (value < 0 || (size_t)value >= rows->value_count) {
                return false;
            }
            often[value] = often[value] ? 2 : 1;
        }
    }
    return true;
}

bool count_fortunes(const FortuneRows *rows, const Fortunes *fortunes)
{
    if (!note_often(rows, fortunes->often)) {
        return false;
    }
    for (size_t value = 0; value < rows->value_count; value++) {
        int32_t own = rows->last_own[value], told = rows->first_result[value];
        if (own < 0) { /* most are */
            continue;
        }
        int8_t kind = rows->kinds[value];
        int16_t shape = rows->shapes[value];
        if (kind < 0 || (size_t)kind >= fortunes->kind_count || shape < 0 || (size_t)shape >= fortunes->shape_count) {
            return false;
        }
        fortunes->own_by_kind[kind]++;
        fortunes->own_by_shape[shape]++;
        if (fortunes->often[value] > 1) {
            fortunes->again_by_kind[kind]++;
            fortunes->again_by_shape[shape]++;
        }
        if (told < 0 || (size_t)told >= rows->sources.count || told >= rows->spoken || own <= rows->messages[told]) {
            continue;
        }
        int32_t tool = rows->tools[told];
        if (tool < 0 || (size_t)tool >= fortunes->tool_count) {
            return false;
        }
        fortunes->used_by_kind[kind]++;
        fortunes->used_by_shape[shape]++;
        fortunes->used_by_tool[tool]++;
        fortunes->used_by_both[((size_t)tool * fortunes->shape_count + (size_t)shape) % fortunes->both_count]++;
    }
    return true;
}

/* Rounds down, as numpy does; `by` is above 0. */
static inline int32_t divide(int32_t number, int32_t by)
{
    int32_t quotient = number / by;
    return quotient - (number % by < 0);
}

typedef struct {
    const int32_t *logits;
    size_t count;
    int32_t divisor, step;
    const float *curve;
    int32_t middle, last; /* of the curve */
    float *weights;
} Curve;

static void squash_part(void *work, size_t part, int worker)
{
    const Curve *curve = work;
    (void)worker;
    for (size_t value = begin_of_part(curve->count, part, PARTS); value < begin_of_part(curve->count, part + 1, PARTS); value++) {
        int32_t place = wrapping_sum(divide(divide(curve->logits[value], curve->divisor), curve->step), curve->middle);
        curve->weights[value] = curve->curve[place < 0 ? 0 : place > curve->last ? curve->last : place]; /* flat beyond its ends */
    }
}

void squash(const int32_t *logits, size_t count, int32_t divisor, int32_t step, const float *curve, size_t curve_count,
            float *weights)
{
    Curve all = {logits, count, divisor, step, curve, (int32_t)(curve_count / 2), (int32_t)curve_count - 1, weights};
    do_parts(squash_part, &all, PARTS, count >= SHARED_FROM);
}

/* Counts the upper halves of numbers, or the lower halves of those with this upper half; a greater number has greater halves. */
static void count_halves(const int32_t *numbers, size_t count, int32_t upper, uint32_t *counts)
{
    memset(counts, 0, HALVES * sizeof(*counts));
    for (size_t place = 0; place < count; place++) {
        uint32_t number = (uint32_t)numbers[place] ^ UINT32_C(0x80000000);
        if (upper < 0) {
            counts[number >> 16]++;
        } else if ((int32_t)(number >> 16) == upper) {
            counts[number & 0xffff]++;
        }
    }
}

/* The half at which, from the greatest one down, `most` numbers are reached; `most` becomes how many of them it has to give. */
static int32_t find_half(const uint32_t *counts, size_t *most)
{
    int32_t half = HALVES - 1;
    while (half > 0 && counts[half] < *most) {
        *most -= counts[half--];
    }
    return half;
}

int32_t find_least_of_most(const int32_t *numbers, size_t count, size_t most, uint32_t *counts)
{
    count_halves(numbers, count, -1, counts);
    int32_t upper = find_half(counts, &most);
    count_halves(numbers, count, upper, counts);
    return (int32_t)(((uint32_t)upper << 16 | (uint32_t)find_half(counts, &most)) ^ UINT32_C(0x80000000));
}
