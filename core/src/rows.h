/* Rows that grow: the arrays of the core. Their memory is Python's, so that tracemalloc sees it; none of it needs the
 * interpreter's lock.
 *
 *     ROWS(uint32_t) numbers = {0};
 *     if (!rows_push(&numbers, 7)) ... out of memory ...
 *     rows_free(&numbers);
 */
#ifndef PENSTOCK_ROWS_H
#define PENSTOCK_ROWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ROWS(type)        \
    struct {              \
        type *at;         \
        size_t count;     \
        size_t room;      \
    }

/* Makes room for `more` rows behind those that are there, which may move them: a pointer to one is good until then. Returns
 * false where memory is out. `at` is the address of a pointer to rows of any type, which only `memcpy` may write to. */
static bool rows_grow(void *at, size_t count, size_t *room, size_t size, size_t more)
{
    size_t wanted = count + (count < 4096 ? count : count / 4) + 16, most = (size_t)PY_SSIZE_T_MAX / size;
    if (wanted > most || more > most - wanted) {
        return false;
    }
    wanted += more;
    void *grown;
    memcpy(&grown, at, sizeof(grown));
    grown = PyMem_RawRealloc(grown, wanted * size);
    if (grown == NULL) {
        return false;
    }
    memcpy(at, &grown, sizeof(grown));
    *room = wanted;
    return true;
}

#define rows_reserve(rows, more)                        \
    ((size_t)(more) <= (rows)->room - (rows)->count ||  \
     rows_grow(&(rows)->at, (rows)->count, &(rows)->room, sizeof(*(rows)->at), (size_t)(more)))
#define rows_push(rows, value) (rows_reserve(rows, 1) && ((rows)->at[(rows)->count++] = (value), true))
#define rows_free(rows) \
    (PyMem_RawFree((rows)->at), (rows)->at = NULL, (rows)->count = 0, (rows)->room = 0)

/* Asks for a place in memory that is soon looked at. Rows that are looked up in no order wait for memory most of the time. */
#if defined(__GNUC__) || defined(__clang__)
#define FETCH(at) __builtin_prefetch(at)
#else
#define FETCH(at) ((void)(at))
#endif
enum { AHEAD = 24 }; /* rows */

#endif
