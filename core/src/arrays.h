/* Arrays of the caller: the only way by which memory that is not ours comes into the loops. */
#ifndef PENSTOCK_ARRAYS_H
#define PENSTOCK_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* What the elements of an array are: their size, and the codes for it in the buffer protocol, of which `l` and `q` differ
 * between platforms. */
typedef struct {
    const char *codes;
    Py_ssize_t size;
} Element;

static const Element an_int8 = {"b", 1}, a_uint8 = {"B", 1}, an_int16 = {"h", 2}, a_uint16 = {"H", 2}, an_int32 = {"bhilqn", 4}, an_int64 = {"bhilqn", 8};
static const Element a_float32 = {"f", 4}, a_flag = {"?", 1};

static inline bool has_elements(const Py_buffer *view, Element element, int dimensions)
{
    const char *format = view->format != NULL ? view->format : "B";
    return view->ndim == dimensions && view->itemsize == element.size && format[0] != 0 &&
           strchr(element.codes, format[0]) != NULL && format[1] == 0 &&
           (view->len == 0 || (uintptr_t)view->buf % (uintptr_t)element.size == 0);
}

/* Opens an array that lies in one piece, row after row, with elements of this kind in the order of this machine. It neither
 * moves nor shrinks until `PyBuffer_Release`; what is in it, its owner may change at any time. */
static inline bool open_table(PyObject *object, Py_buffer *view, Element element, int dimensions, bool written)
{
    if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0)) < 0) {
        return false;
    }
    if (!has_elements(view, element, dimensions)) {
        PyErr_Format(PyExc_ValueError, "expected %s of elements of %zd bytes with the code %s, not %zd with %s in %d dimensions",
                     dimensions == 1 ? "a row" : "a table", element.size, element.codes, view->itemsize,
                     view->format != NULL ? view->format : "B", view->ndim);
        PyBuffer_Release(view);
        return false;
    }
    return true;
}

static inline bool open_array(PyObject *object, Py_buffer *view, Element element, bool written)
{
    return open_table(object, view, element, 1, written);
}

/* How many elements an open array has. */
static inline size_t length_of(const Py_buffer *view)
{
    return (size_t)(view->len / view->itemsize);
}

/* Closes those of these arrays that were opened; the others are zero. */
static inline void close_arrays(Py_buffer *views, int count)
{
    for (int place = 0; place < count; place++) {
        if (views[place].obj != NULL) {
            PyBuffer_Release(&views[place]);
        }
    }
}

#endif
