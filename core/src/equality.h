/* How far two lists of JSON objects are equal: what `penstock.writing.notebook` asks at each compaction of the last list, of which
 * it holds copies, and of a list that is mostly the same again.
 */
#ifndef PENSTOCK_EQUALITY_H
#define PENSTOCK_EQUALITY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Returns how many at the start of both lists are certainly equal and written alike, in order, too. The first that is not may yet
 * be equal: it is for Python to say. Runs no Python code. An object that is in both must be one that nobody can change, such as a
 * text: copies of dicts and lists are dicts and lists of their own. */
PyObject *call_count_equal(PyObject *module, PyObject *args);

#endif
