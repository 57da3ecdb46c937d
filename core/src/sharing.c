#include "sharing.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

/* It belongs to both threads, since the second one may begin long after the caller has done everything: the last one frees it. Its
 * memory is not Python's, which may ask for the interpreter's lock. */
typedef struct {
    DoPart do_part;
    void *work;
    size_t next, count;          /* parts */
    int owners;
    bool is_helping, is_awaited; /* the second thread is in the middle of a part; the caller waits for that */
    PyThread_type_lock guard;    /* of all of the above */
    PyThread_type_lock is_done;  /* locked until the part that is awaited is done */
} Errand;

static void release(Errand *errand)
{
    PyThread_acquire_lock(errand->guard, WAIT_LOCK);
    bool is_last = --errand->owners == 0;
    PyThread_release_lock(errand->guard);
    if (is_last) {
        PyThread_free_lock(errand->guard);
        PyThread_free_lock(errand->is_done);
        free(errand);
    }
}

static void help(void *at)
{
    Errand *errand = at;
    for (;;) {
        PyThread_acquire_lock(errand->guard, WAIT_LOCK);
        errand->is_helping = errand->next < errand->count && !errand->is_awaited;
        size_t part = errand->next;
        errand->next += errand->is_helping;
        if (errand->is_awaited) {
            errand->is_awaited = false;
            PyThread_release_lock(errand->is_done);
        }
        PyThread_release_lock(errand->guard);
        if (!errand->is_helping) {
            break;
        }
        errand->do_part(errand->work, part, 1);
    }
    release(errand);
}

/* Returns an errand on which a second thread has set out; NULL where that cannot be. */
static Errand *send(DoPart do_part, void *work, size_t count)
{
    Errand *errand = malloc(sizeof(*errand));
    if (errand == NULL) {
        return NULL;
    }
    *errand = (Errand){do_part, work, 0, count, WORKERS, false, false, PyThread_allocate_lock(), PyThread_allocate_lock()};
    if (errand->guard != NULL && errand->is_done != NULL && PyThread_acquire_lock(errand->is_done, NOWAIT_LOCK) &&
        PyThread_start_new_thread(help, errand) != PYTHREAD_INVALID_THREAD_ID) {
        return errand;
    }
    if (errand->guard != NULL) {
        PyThread_free_lock(errand->guard);
    }
    if (errand->is_done != NULL) {
        PyThread_free_lock(errand->is_done);
    }
    free(errand);
    return NULL;
}

void do_parts(DoPart do_part, void *work, size_t count, bool together)
{
    Errand *errand = together ? send(do_part, work, count) : NULL;
    if (errand == NULL) {
        for (size_t part = 0; part < count; part++) {
            do_part(work, part, 0);
        }
        return;
    }
    for (;;) {
        PyThread_acquire_lock(errand->guard, WAIT_LOCK);
        size_t part = errand->next;
        bool is_left = part < errand->count;
        errand->next += is_left;
        bool waits = errand->is_awaited = !is_left && errand->is_helping;
        PyThread_release_lock(errand->guard);
        if (is_left) {
            do_part(work, part, 0);
            continue;
        }
        if (waits) {
            PyThread_acquire_lock(errand->is_done, WAIT_LOCK);
        }
        break;
    }
    release(errand);
}
