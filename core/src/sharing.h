/* Long passes over rows, done in parts by the caller's thread and, where another core is idle, by a second one. Who does a part writes
 * to rows of his own, so that the results are those of one pass, whoever does which.
 */
#ifndef PENSTOCK_SHARING_H
#define PENSTOCK_SHARING_H

#include <stdbool.h>
#include <stddef.h>

enum { SHARED_FROM = 100000 }; /* rows: to start a thread takes as long as some thousand rows */
enum { PARTS = 16, WORKERS = 2 };

/* Does one part of `work`, without the interpreter. `worker` is 0 on the caller's thread and 1 on the other one; each does its parts
 * in their order. */
typedef void (*DoPart)(void *work, size_t part, int worker);

/* Does all parts, and returns when they are done; with `together`, a second thread helps. The caller never waits for that thread to
 * begin, only for the part that it is in the middle of: on a busy machine the caller does nearly all parts itself. */
void do_parts(DoPart do_part, void *work, size_t count, bool together);

/* Where a part begins if so many rows are shared out evenly; part `count` is the end. */
static inline size_t begin_of_part(size_t rows, size_t part, size_t count)
{
    return rows / count * part + (part < rows % count ? part : rows % count);
}

#endif
