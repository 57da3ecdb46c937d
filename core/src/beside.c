#include "beside.h"

#include "sharing.h"

enum { NO_NEIGHBOUR = -20 * 64 }; /* the mean of no logit */

static inline int32_t larger(int32_t one, int32_t other) { return one > other ? one : other; }
static inline int32_t smaller(int32_t one, int32_t other) { return one < other ? one : other; }

/* Rounds down, as numpy does. */
static inline int32_t divide(int32_t sum, int32_t by)
{
    int32_t quotient = sum / by;
    return quotient - (sum % by != 0 && sum < 0);
}

/* The weight of an excerpt and of its neighbours in the same source; as numpy adds, what is too large begins anew. */
static inline int32_t add_neighbours(const ExcerptRows *rows, const int32_t *weights, size_t excerpt)
{
    uint32_t sum = (uint32_t)weights[excerpt];
    int32_t source = rows->source_of[excerpt];
    if (excerpt > 0 && rows->source_of[excerpt - 1] == source) {
        sum += (uint32_t)weights[excerpt - 1];
    }
    if (excerpt + 1 < rows->excerpt_count && rows->source_of[excerpt + 1] == source) {
        sum += (uint32_t)weights[excerpt + 1];
    }
    return (int32_t)sum;
}

/* What is looked up of a value: four times its logit, 2 more if it was used, 1 more if it is asked about. One look-up in few bytes, since
 * the look-ups of a million rows are in no order. Its place among those that are asked about is looked up only for them. */
typedef int16_t Look;

enum { MOST_RULE = INT16_MAX / 4 };

static bool pack_values(const ExcerptRows *rows, Look *looks)
{
    for (size_t value = 0; value < rows->value_count; value++) {
        int32_t rule = rows->rule[value];
        if (rule > MOST_RULE || rule < -MOST_RULE) {
            return false; /* twice what any weights add up to */
        }
        looks[value] = (Look)(rule * 4 + (rows->used[value] != 0) * 2 + (rows->place_of[value] >= 0));
    }
    return true;
}

static inline int32_t rule_of(Look look) { return look >> 2; }
static inline int32_t use_of(Look look) { return look >> 1 & 1; }

/* A row of `BesideRows`, side by side: to change it touches one place in memory instead of seven. */
typedef struct {
    int32_t first, last, asked, work, crowd, used, rule;
    int32_t unused;
} Row;

static void read_rows(const BesideRows *beside, Row *found)
{
    for (size_t place = 0; place < beside->count; place++) {
        found[place] = (Row){beside->first[place], beside->last[place], beside->asked[place], beside->work[place],
                             beside->crowd[place], beside->used[place], beside->rule[place], 0};
    }
}

static void write_rows(const Row *found, const BesideRows *beside)
{
    for (size_t place = 0; place < beside->count; place++) {
        const Row *row = &found[place];
        beside->first[place] = row->first;
        beside->last[place] = row->last;
        beside->asked[place] = row->asked;
        beside->work[place] = row->work;
        beside->crowd[place] = row->crowd;
        beside->used[place] = row->used;
        beside->rule[place] = row->rule;
    }
}

/* An excerpt that is looked at, and a row of it whose value is asked about. */
typedef struct {
    int64_t rule;
    int32_t used, size, asked, work;
} Excerpt;

typedef struct {
    int32_t excerpt; /* its place in the block */
    int32_t value;
    Look look;
} Hit;

/* What is looked at, and what one worker found in it. */
typedef struct {
    const ExcerptRows *rows;
    const Look *looks;
    Hit *hits;
    size_t hit_room;
    Row *found;
    size_t found_count;
    bool fits; /* no number so far pointed outside of the rows */
} Search;

/* Many excerpts are looked at together: first all of their rows, then those whose values are asked about, one after the other. So the
 * processor need not guess which they are, and can fetch them ahead. */
enum { EXCERPTS_AT_ONCE = 1024, HITS_AHEAD = 8 };

/* Adds up the rows of an excerpt, and appends its hits; returns their new number, or -1 for a row that does not fit. */
static ptrdiff_t add_up(const Search *search, int32_t start, int32_t end, int32_t place, Excerpt *sum, ptrdiff_t hit_count)
{
    const ExcerptRows *rows = search->rows;
    int64_t rule = 0;
    int32_t used = 0;
    for (int32_t row = start; row < end; row++) {
        uint32_t value = (uint32_t)rows->ids[row];
        if (value >= rows->value_count) {
            return -1;
        }
        if ((size_t)row + AHEAD < rows->id_count && (uint32_t)rows->ids[row + AHEAD] < rows->value_count) {
            FETCH(&search->looks[rows->ids[row + AHEAD]]);
        }
        Look look = search->looks[value];
        rule += rule_of(look);
        used += use_of(look);
        search->hits[hit_count] = (Hit){place, (int32_t)value, look};
        hit_count += look & 1;
    }
    sum->rule = rule;
    sum->used = used;
    sum->size = end - start;
    return hit_count;
}

static inline void take_in(const Hit *hit, const Excerpt *excerpt, int32_t number, Row *one)
{
    int32_t others = (int32_t)(excerpt->rule - rule_of(hit->look)), size = excerpt->size;
    one->used = larger(one->used, excerpt->used - use_of(hit->look));
    if (size == 1) {
        one->rule = larger(one->rule, NO_NEIGHBOUR);
    } else if (others >= ((int64_t)one->rule + 1) * (size - 1)) { /* a division takes its time */
        one->rule = divide(others, size - 1);
    }
    one->asked = larger(one->asked, excerpt->asked);
    one->work = larger(one->work, excerpt->work);
    one->crowd = smaller(one->crowd, size);
    one->first = smaller(one->first, number);
    one->last = number;
}

/* The row of a value that is asked about, or NULL where it has none. */
static inline Row *find_row(const Search *search, int32_t value)
{
    int32_t place = search->rows->place_of[value];
    return place >= 0 && (size_t)place < search->found_count ? &search->found[place] : NULL;
}

static bool look_at_block(Search *search, size_t first, size_t after)
{
    Excerpt sums[EXCERPTS_AT_ONCE];
    const ExcerptRows *rows = search->rows;
    ptrdiff_t hit_count = 0;
    for (size_t excerpt = first; excerpt < after; excerpt++) {
        int32_t start = rows->starts[excerpt], end = rows->starts[excerpt + 1];
        if (start < 0 || start > end || (size_t)end > rows->id_count ||
            (size_t)(end - start) + (size_t)hit_count >= search->hit_room) {
            return false;
        }
        Excerpt *sum = &sums[excerpt - first];
        sum->asked = add_neighbours(rows, rows->asked, excerpt);
        sum->work = add_neighbours(rows, rows->work, excerpt);
        hit_count = add_up(search, start, end, (int32_t)(excerpt - first), sum, hit_count);
        if (hit_count < 0) {
            return false;
        }
    }
    for (ptrdiff_t place = 0; place < hit_count; place++) {
        const Hit *hit = &search->hits[place];
        if (place + 2 * HITS_AHEAD < hit_count) {
            FETCH(&rows->place_of[hit[2 * HITS_AHEAD].value]);
        }
        Row *ahead = place + HITS_AHEAD < hit_count ? find_row(search, hit[HITS_AHEAD].value) : NULL, *own = find_row(search, hit->value);
        if (ahead != NULL) {
            FETCH(ahead);
        }
        if (own == NULL) {
            return false;
        }
        take_in(hit, &sums[hit->excerpt], (int32_t)first + hit->excerpt, own);
    }
    return true;
}

static void look_at_part(void *work, size_t part, int worker)
{
    Search *search = (Search *)work + worker;
    size_t count = search->rows->excerpt_count, end = begin_of_part(count, part + 1, PARTS);
    for (size_t first = begin_of_part(count, part, PARTS); first < end && search->fits; first += EXCERPTS_AT_ONCE) {
        search->fits = look_at_block(search, first, end - first < EXCERPTS_AT_ONCE ? end : first + EXCERPTS_AT_ONCE);
    }
}

/* The most rows that excerpts of one block have, and one more; 0 where the starts do not ascend. */
static size_t find_room(const ExcerptRows *rows)
{
    size_t room = 1;
    for (size_t part = 0; part < PARTS; part++) {
        size_t end = begin_of_part(rows->excerpt_count, part + 1, PARTS);
        for (size_t first = begin_of_part(rows->excerpt_count, part, PARTS); first < end; first += EXCERPTS_AT_ONCE) {
            int32_t start = rows->starts[first], stop = rows->starts[end - first < EXCERPTS_AT_ONCE ? end : first + EXCERPTS_AT_ONCE];
            if (start < 0 || start > stop || (size_t)stop > rows->id_count) {
                return 0;
            }
            room = (size_t)(stop - start) + 1 > room ? (size_t)(stop - start) + 1 : room;
        }
    }
    return room;
}

enum { UNTOUCHED = INT32_MIN }; /* the last excerpt of a row that the second worker did not find */

/* Begins the rows of a second worker as those of the first begin. */
static void copy_rows(const Row *found, Row *copies, size_t count)
{
    for (size_t place = 0; place < count; place++) {
        copies[place] = found[place];
        copies[place].last = UNTOUCHED;
    }
}

static void join_rows(Row *found, const Row *others, size_t count)
{
    for (size_t place = 0; place < count; place++) {
        Row *one = &found[place];
        const Row *other = &others[place];
        if (other->last == UNTOUCHED) {
            continue;
        }
        one->used = larger(one->used, other->used);
        one->rule = larger(one->rule, other->rule);
        one->asked = larger(one->asked, other->asked);
        one->work = larger(one->work, other->work);
        one->crowd = smaller(one->crowd, other->crowd);
        one->first = smaller(one->first, other->first);
        one->last = larger(one->last, other->last);
    }
}

int look_beside(const ExcerptRows *rows, const BesideRows *beside)
{
    int workers = rows->id_count < SHARED_FROM ? 1 : WORKERS;
    size_t room = find_room(rows), row_count = beside->count + 1;
    Look *looks = PyMem_RawMalloc((rows->value_count + 1) * sizeof(*looks));
    Row *found = PyMem_RawMalloc((size_t)workers * row_count * sizeof(*found));
    Hit *hits = PyMem_RawMalloc((size_t)workers * (room + 1) * sizeof(*hits));
    int outcome = looks == NULL || found == NULL || hits == NULL ? 0 : -1;
    if (outcome == -1 && room > 0 && pack_values(rows, looks)) {
        Search searches[WORKERS] = {
            {rows, looks, hits, room, found, beside->count, true},
            {rows, looks, hits + room + 1, room, found + row_count, beside->count, true},
        };
        read_rows(beside, found);
        if (workers > 1) {
            copy_rows(found, searches[1].found, beside->count);
        }
        do_parts(look_at_part, searches, PARTS, workers > 1);
        if (workers > 1) {
            join_rows(found, searches[1].found, beside->count);
        }
        outcome = searches[0].fits && searches[1].fits ? 1 : -1;
    }
    if (outcome == 1) {
        write_rows(found, beside);
    }
    PyMem_RawFree(looks);
    PyMem_RawFree(found);
    PyMem_RawFree(hits);
    return outcome;
}
