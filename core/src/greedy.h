/* Choosing excerpts by what they add per token: `Greedy` of `penstock.writing.greedy`, which says what each step is for.
 * Excerpts, sources and values are the numbers that the `Index` gave them; `candidates` and `sources` are kept in the order in
 * which they came, and found by their numbers. Who calls checks the numbers: here they are used as they are.
 */
#ifndef PENSTOCK_GREEDY_H
#define PENSTOCK_GREEDY_H

#include "rows.h"

enum { PLAIN_UNKNOWN = -1 };
enum { LARGEST_NUMBER = INT32_MAX - 1 }; /* of an excerpt: the one behind it has a number, too */

/* An excerpt that was looked at. */
typedef struct {
    int32_t number;
    uint32_t source;     /* its place among the sources */
    int32_t cost_tokens;
    uint32_t first;      /* its values are values[first : first + count] */
    uint32_t count;
    uint32_t round;      /* of the latest `begin` that it was given to */
    uint32_t sibling;    /* 1 + the place of the candidate of the same source that was given before it; 0 for none */
    int8_t plain_words;
    bool is_chosen;
    bool has_parts;      /* its values are more than the index has */
} Candidate;

typedef struct {
    int32_t number;
    int32_t header_tokens;
    uint32_t round;      /* of `begin`: an older one has no siblings */
    uint32_t siblings;   /* 1 + the place of the candidate that was given last */
    bool is_open;        /* its header is paid for */
} Source;

/* A candidate on the heap, by minus what it added per token when it was last looked at. */
typedef struct {
    double key;
    int32_t number;
} Entry;

/* What the caller must tell; each returns false where Python raised an error. `prepare` adds the excerpt, so that rows may
 * have moved behind it; the others change nothing. */
typedef struct {
    void *context;
    bool (*plain_words)(void *context, int32_t number, int8_t *words);
    bool (*is_shown)(void *context, int32_t number, bool *shown);
    bool (*prepare)(void *context, int32_t number);
} Asked;

typedef struct {
    ROWS(Candidate) candidates;
    ROWS(Source) sources;
    ROWS(uint32_t) candidate_slots; /* places + 1, each in the first free slot from that of its number on; 0 in a free one */
    ROWS(uint32_t) source_slots;
    ROWS(int32_t) values;           /* of all candidates, one after the other */
    ROWS(Entry) heap;
    ROWS(Entry) too_large;
    ROWS(int32_t) order;            /* chosen, first chosen first */
    int64_t tokens;
    uint32_t round;
    /* Of all values, by number. The arrays are the caller's, but for `raised_bare`. */
    const float *weights;
    float *covered;
    uint8_t *raised_bare;           /* 1 where `covered` is `BARE` by a choice, which it can only hold rounded */
    size_t value_count;
    /* Of all excerpts, by number, for one `fill`: NULL before the first. They are the caller's, too. */
    const uint8_t *allowed;
    const float *worth;             /* NULL where excerpts are worth nothing beside their values */
    const int32_t *source_of;
    const int32_t *lengths;
    size_t excerpt_count;
    Asked ask;
} Greedy;

/* Returns 1, 0 where memory is out, -1 where the caller raised an error. */
typedef int Outcome;

/* Returns the excerpt of this number, NULL for one that was not added. A pointer to it is good until the next one is added. */
Candidate *greedy_find(const Greedy *greedy, int32_t number);
/* Adds an excerpt that was not added before. */
bool greedy_add(Greedy *greedy, int32_t number, int32_t source, int32_t cost_tokens, const int32_t *values, size_t count,
                bool has_parts, int8_t plain_words);
bool greedy_set_header(Greedy *greedy, int32_t source, int32_t tokens);
int64_t greedy_price(const Greedy *greedy, const Candidate *candidate);
Outcome greedy_choose(Greedy *greedy, Candidate *candidate);
void greedy_notice(Greedy *greedy, const int32_t *values, size_t count);
/* All excerpts of the pool were added before. */
Outcome greedy_begin(Greedy *greedy, const int32_t *pool, const float *gains, size_t count);
Outcome greedy_run(Greedy *greedy, int64_t budget_tokens);
bool greedy_drop_last(Greedy *greedy);
void greedy_free(Greedy *greedy);

#endif
