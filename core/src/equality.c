#include "equality.h"

#include <math.h>

#include "rows.h"

enum { DEEPEST = 100, MESSAGES_AHEAD = 6 };

static bool is_equal(PyObject *one, PyObject *other, int depth);

static inline bool is_equal_text(PyObject *one, PyObject *other)
{
    return PyUnicode_GET_LENGTH(one) == PyUnicode_GET_LENGTH(other) && PyUnicode_KIND(one) == PyUnicode_KIND(other) &&
           memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)PyUnicode_GET_LENGTH(one) * PyUnicode_KIND(one)) == 0;
}

/* Goes through both in their order, so that no key is looked up. */
static bool is_equal_dict(PyObject *one, PyObject *other, int depth)
{
    PyObject *key, *value, *other_key, *other_value;
    Py_ssize_t place = 0, other_place = 0;
    if (PyDict_GET_SIZE(one) != PyDict_GET_SIZE(other)) {
        return false;
    }
    while (PyDict_Next(one, &place, &key, &value)) {
        if (!PyDict_Next(other, &other_place, &other_key, &other_value)) {
            return false;
        }
        if (key != other_key &&
            (!PyUnicode_CheckExact(key) || !PyUnicode_CheckExact(other_key) || !is_equal_text(key, other_key))) {
            return false;
        }
        if (!is_equal(value, other_value, depth)) {
            return false;
        }
    }
    return true;
}

static bool is_equal(PyObject *one, PyObject *other, int depth)
{
    if (one == other) { /* not even their types are looked at: most texts are in both lists, and far apart in memory */
        return true;
    }
    if (PyUnicode_CheckExact(one)) {
        return PyUnicode_CheckExact(other) && is_equal_text(one, other);
    }
    if (depth == DEEPEST) {
        return false;
    }
    if (PyDict_CheckExact(one)) {
        return PyDict_CheckExact(other) && is_equal_dict(one, other, depth + 1);
    }
    if (PyList_CheckExact(one)) {
        bool equal = PyList_CheckExact(other) && PyList_GET_SIZE(one) == PyList_GET_SIZE(other);
        for (Py_ssize_t place = 0; equal && place < PyList_GET_SIZE(one); place++) {
            equal = is_equal(PyList_GET_ITEM(one, place), PyList_GET_ITEM(other, place), depth + 1);
        }
        return equal;
    }
    if (PyLong_CheckExact(one) && PyLong_CheckExact(other)) { /* the comparison of two such runs no code of theirs */
        return PyObject_RichCompareBool(one, other, Py_EQ) == 1;
    }
    return PyFloat_CheckExact(one) && PyFloat_CheckExact(other) && PyFloat_AS_DOUBLE(one) == PyFloat_AS_DOUBLE(other) &&
           !signbit(PyFloat_AS_DOUBLE(one)) == !signbit(PyFloat_AS_DOUBLE(other)); /* no NaN, and not 0.0 with -0.0 */
}

/* Objects lie where they were made, so that each step to one waits for memory. This asks for those of the next messages. */
static inline void fetch_object(PyObject *list, Py_ssize_t place)
{
    if (place < PyList_GET_SIZE(list)) {
        FETCH(PyList_GET_ITEM(list, place));
    }
}

static inline void fetch_items(PyObject *list, Py_ssize_t place)
{
    if (place < PyList_GET_SIZE(list) && PyDict_CheckExact(PyList_GET_ITEM(list, place))) {
        const char *keys = (const char *)((PyDictObject *)PyList_GET_ITEM(list, place))->ma_keys;
        for (size_t line = 0; line < 3; line++) {
            FETCH(keys + line * 64);
        }
    }
}

PyObject *call_count_equal(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *one, *other;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &one, &PyList_Type, &other)) {
        return NULL;
    }
    Py_ssize_t both = PyList_GET_SIZE(one) < PyList_GET_SIZE(other) ? PyList_GET_SIZE(one) : PyList_GET_SIZE(other);
    Py_ssize_t place = 0;
    while (place < both && is_equal(PyList_GET_ITEM(one, place), PyList_GET_ITEM(other, place), 0)) {
        place++;
        fetch_object(one, place + 2 * MESSAGES_AHEAD);
        fetch_object(other, place + 2 * MESSAGES_AHEAD);
        fetch_items(one, place + MESSAGES_AHEAD);
        fetch_items(other, place + MESSAGES_AHEAD);
    }
    return PyLong_FromSsize_t(place);
}
