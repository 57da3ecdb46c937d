/* What stands beside some values in the excerpts that hold them: the pass over all rows of a conversation in
 * `penstock.writing.importance`.
 */
#ifndef PENSTOCK_BESIDE_H
#define PENSTOCK_BESIDE_H

#include "rows.h"

/* The rows that are looked at. Excerpt e has the values ids[starts[e]] up to, not including, ids[starts[e + 1]]. */
typedef struct {
    size_t excerpt_count;
    size_t id_count;
    size_t value_count;
    const int32_t *starts;   /* by excerpt, and one more for the end */
    const int32_t *ids;
    const int32_t *place_of; /* by value: its place among those that are asked about, -1 for any other */
    const int32_t *rule;     /* by value: the logit of the rule */
    const uint8_t *used;     /* by value: whether the assistant has used it */
    const int32_t *asked;     /* by excerpt: the weight of the words of the last requests in it */
    const int32_t *work;      /* and of the words of the agent's last messages */
    const int32_t *source_of; /* by excerpt */
} ExcerptRows;

/* What is filled, a row for each value that is asked about; rows hold what is true of a value in no excerpt before. */
typedef struct {
    size_t count;
    int32_t *first;      /* the first excerpt that the value stands in, */
    int32_t *last;       /* and the last; of what follows, the most that any of its excerpts has */
    int32_t *asked;      /* its weight and those of its neighbours in the same source */
    int32_t *work;
    int32_t *crowd;      /* the least: how many values stand in it */
    int32_t *used;       /* how many of the others the assistant has used */
    int32_t *rule;       /* the mean logit of the others */
} BesideRows;

/* Returns 1; 0 where memory is out; -1, and fills nothing, where a number in the rows points outside of them. Each is looked at
 * right before it is used: the arrays are the caller's, and another thread might write to them meanwhile. */
int look_beside(const ExcerptRows *rows, const BesideRows *beside);

#endif
