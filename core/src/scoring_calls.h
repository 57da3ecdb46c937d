/* The functions of `scoring.h`, as Python calls them. */
#ifndef PENSTOCK_SCORING_CALLS_H
#define PENSTOCK_SCORING_CALLS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *call_sum_lacks(PyObject *module, PyObject *args);
PyObject *call_add_leaves(PyObject *module, PyObject *args);
PyObject *call_count_mentions(PyObject *module, PyObject *args);
PyObject *call_count_owners(PyObject *module, PyObject *args);
PyObject *call_count_sources(PyObject *module, PyObject *args);
PyObject *call_make_shares(PyObject *module, PyObject *args);
PyObject *call_score_rule(PyObject *module, PyObject *args);
PyObject *call_count_fortunes(PyObject *module, PyObject *args);
PyObject *call_squash(PyObject *module, PyObject *args);
PyObject *call_find_least_of_most(PyObject *module, PyObject *args);

#endif
