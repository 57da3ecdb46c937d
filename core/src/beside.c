#include "beside.h"

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

/* What is looked up of a value besides its logit: twice its place among those that are asked about, and 1 more if it was used; below 0
 * for any other. Two look-ups instead of three; all in one would take too much memory. */
typedef int32_t PlaceAndUse;

enum { MOST_PLACES = 1 << 30 };

static bool pack_values(const ExcerptRows *rows, size_t count, PlaceAndUse *looks)
{
    if (count > MOST_PLACES) {
        return false;
    }
    for (size_t value = 0; value < rows->value_count; value++) {
        int32_t place = rows->place_of[value];
        if (place >= 0 && (size_t)place >= count) {
            return false;
        }
        looks[value] = (place < 0 ? -2 : place * 2) + (rows->used[value] != 0);
    }
    return true;
}

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
    int32_t rule;
    PlaceAndUse look;
} Hit;

/* Many excerpts are looked at together: first all of their rows, then those whose values are asked about, one after the other. So the
 * processor need not guess which they are, and can fetch them ahead. */
enum { EXCERPTS_AT_ONCE = 1024, HITS_AHEAD = 8 };

/* Adds up the rows of an excerpt, and appends its hits; returns their new number, or -1 for a row that does not fit. */
static ptrdiff_t add_up(const ExcerptRows *rows, const PlaceAndUse *looks, int32_t start, int32_t end, int32_t place,
                        Excerpt *sum, Hit *hits, ptrdiff_t hit_count)
{
    int64_t rule = 0;
    int32_t used = 0;
    for (int32_t row = start; row < end; row++) {
        uint32_t value = (uint32_t)rows->ids[row];
        if (value >= rows->value_count) {
            return -1;
        }
        if ((size_t)row + AHEAD < rows->id_count && (uint32_t)rows->ids[row + AHEAD] < rows->value_count) {
            FETCH(&looks[rows->ids[row + AHEAD]]);
            FETCH(&rows->rule[rows->ids[row + AHEAD]]);
        }
        PlaceAndUse look = looks[value];
        int32_t own = rows->rule[value];
        rule += own;
        used += look & 1;
        hits[hit_count] = (Hit){place, own, look};
        hit_count += look >= 0;
    }
    sum->rule = rule;
    sum->used = used;
    sum->size = end - start;
    return hit_count;
}

static inline void take_in(const Hit *hit, const Excerpt *excerpt, int32_t number, Row *found)
{
    Row *one = &found[hit->look / 2];
    int32_t others = (int32_t)(excerpt->rule - hit->rule), size = excerpt->size;
    one->used = larger(one->used, excerpt->used - (hit->look & 1));
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

static bool look_at_excerpts(const ExcerptRows *rows, const PlaceAndUse *looks, Hit *hits, size_t hit_room, Row *found)
{
    Excerpt sums[EXCERPTS_AT_ONCE];
    for (size_t first = 0; first < rows->excerpt_count; first += EXCERPTS_AT_ONCE) {
        size_t many = rows->excerpt_count - first;
        many = many < EXCERPTS_AT_ONCE ? many : EXCERPTS_AT_ONCE;
        ptrdiff_t hit_count = 0;
        for (size_t place = 0; place < many; place++) {
            size_t excerpt = first + place;
            int32_t start = rows->starts[excerpt], end = rows->starts[excerpt + 1];
            if (start < 0 || start > end || (size_t)end > rows->id_count ||
                (size_t)(end - start) + (size_t)hit_count >= hit_room) {
                return false;
            }
            sums[place].asked = add_neighbours(rows, rows->asked, excerpt);
            sums[place].work = add_neighbours(rows, rows->work, excerpt);
            hit_count = add_up(rows, looks, start, end, (int32_t)place, &sums[place], hits, hit_count);
            if (hit_count < 0) {
                return false;
            }
        }
        for (ptrdiff_t place = 0; place < hit_count; place++) {
            if (place + HITS_AHEAD < hit_count) {
                FETCH(&found[hits[place + HITS_AHEAD].look / 2]);
            }
            take_in(&hits[place], &sums[hits[place].excerpt], (int32_t)(first + (size_t)hits[place].excerpt), found);
        }
    }
    return true;
}

/* The most rows that excerpts of one block have, and one more; 0 where the starts do not ascend. */
static size_t find_room(const ExcerptRows *rows)
{
    size_t room = 1;
    for (size_t first = 0; first < rows->excerpt_count; first += EXCERPTS_AT_ONCE) {
        size_t after = first + EXCERPTS_AT_ONCE < rows->excerpt_count ? first + EXCERPTS_AT_ONCE : rows->excerpt_count;
        int32_t start = rows->starts[first], end = rows->starts[after];
        if (start < 0 || start > end || (size_t)end > rows->id_count) {
            return 0;
        }
        room = (size_t)(end - start) + 1 > room ? (size_t)(end - start) + 1 : room;
    }
    return room;
}

int look_beside(const ExcerptRows *rows, const BesideRows *beside)
{
    size_t room = find_room(rows);
    PlaceAndUse *looks = PyMem_RawMalloc((rows->value_count + 1) * sizeof(*looks));
    Row *found = PyMem_RawMalloc((beside->count + 1) * sizeof(*found));
    Hit *hits = PyMem_RawMalloc((room + 1) * sizeof(*hits));
    int outcome = looks == NULL || found == NULL || hits == NULL ? 0 : -1;
    if (outcome == -1 && room > 0 && pack_values(rows, beside->count, looks)) {
        read_rows(beside, found);
        outcome = look_at_excerpts(rows, looks, hits, room, found) ? 1 : -1;
    }
    if (outcome == 1) {
        write_rows(found, beside);
    }
    PyMem_RawFree(looks);
    PyMem_RawFree(found);
    PyMem_RawFree(hits);
    return outcome;
}
