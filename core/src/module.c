/* The Python module `penstock_core`: each of its classes and functions is the compiled twin of one in `penstock.writing`,
 * which says what it is for.
 *
 * This file stands between Python and the loops, which trust it. It checks what is passed in: that arrays hold what they
 * should, are as long as they should be, and that numbers lie within them. It holds what the loops point to for as long
 * as they do. And it sees to it that nobody else, another thread or Python code that a loop calls, comes to an object in
 * the middle of a call: that is a RuntimeError. Texts, bytes and tuples cannot change; an array of the caller keeps its place
 * and its size while it is held.
 *
 * Threads without the interpreter's lock are not provided for: an interpreter without one turns it on when it loads this, and
 * one with a lock of its own, or that is told to do without, does not load it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "anchors.h"
#include "arrays.h"
#include "beside.h"
#include "cutting.h"
#include "equality.h"
#include "greedy.h"
#include "paths.h"
#include "scoring_calls.h"
#include "values.h"
#include "words.h"

typedef struct {
    PyObject_HEAD
    ValueTable table;
    bool busy; /* a call is under way, which may have let the interpreter's lock go */
} ValueTableObject;

static bool take(ValueTableObject *self)
{
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "a ValueTable serves one thread at a time");
        return false;
    }
    self->busy = true;
    return true;
}

static bool read_bytes(PyObject *object, Bytes *bytes)
{
    char *at;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(object, &at, &size) < 0) {
        return false;
    }
    *bytes = (Bytes){(const uint8_t *)at, (size_t)size};
    return true;
}

/* Reads a block of text as it is encoded by Python; one that is too large is refused. */
static bool read_block(PyObject *object, Bytes *block)
{
    if (!read_bytes(object, block)) {
        return false;
    }
    if (block->size > LARGEST_BLOCK) {
        PyErr_Format(PyExc_OverflowError, "a block has at most %d bytes", LARGEST_BLOCK);
        return false;
    }
    return true;
}

/* Reads a number from 0 to `most`. */
static bool read_number(PyObject *object, long most, long *number)
{
    if (!PyLong_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected an int, not %.80s", Py_TYPE(object)->tp_name);
        return false;
    }
    int overflow;
    *number = PyLong_AsLongAndOverflow(object, &overflow);
    if (overflow || *number < 0 || *number > most) {
        PyErr_Format(PyExc_ValueError, "expected a number from 0 to %ld", most);
        return false;
    }
    return true;
}

/* Reads the table of separators; None where the block is ASCII. */
static bool read_separators(PyObject *object, const uint8_t **separators)
{
    Bytes bytes = {NULL, 0};
    if (object != Py_None && !read_bytes(object, &bytes)) {
        return false;
    }
    if (bytes.at != NULL && bytes.size != CHARACTERS) {
        PyErr_Format(PyExc_ValueError, "a table of separators has %d rows", CHARACTERS);
        return false;
    }
    *separators = bytes.at;
    return true;
}

/* Returns a copy of rows; of none, `at` may be NULL. */
static PyObject *rows_to_bytearray(const void *at, size_t count, size_t size)
{
    return PyByteArray_FromStringAndSize(count ? at : "", (Py_ssize_t)(count * size));
}

#define TO_BYTEARRAY(rows) rows_to_bytearray((rows).at, (rows).count, sizeof(*(rows).at))

/* Takes in a word, in small letters, that says something of a value behind it or names no subject. */
static bool know_word(ValueTable *table, PyObject *word, long label, bool no_subject)
{
    Bytes bytes;
    if (!read_bytes(word, &bytes)) {
        return false;
    }
    if (bytes.size > LONGEST_KNOWN_WORD || table->known_words.count >= MOST_KNOWN_WORDS) {
        PyErr_Format(PyExc_ValueError, "up to %d words are known, of up to %d bytes", MOST_KNOWN_WORDS, LONGEST_KNOWN_WORD);
        return false;
    }
    if (!table_know_word(table, bytes, (uint8_t)label, no_subject)) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static PyObject *new_value_table(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"seed", "labels", "no_subject", NULL};
    unsigned long long seed;
    PyObject *labels, *no_subject;
    if (!PyArg_ParseTupleAndKeywords(args, named, "KO!O!", names, &seed, &PyDict_Type, &labels, &PyList_Type, &no_subject)) {
        return NULL;
    }
    ValueTableObject *self = (ValueTableObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->table.seed = seed;
    bool good = true;
    PyObject *word, *label;
    Py_ssize_t place = 0;
    while (good && PyDict_Next(labels, &place, &word, &label)) {
        long number;
        good = read_number(label, LARGEST_LABEL, &number) && know_word(&self->table, word, number, false);
    }
    for (place = 0; good && place < PyList_GET_SIZE(no_subject); place++) {
        good = know_word(&self->table, PyList_GET_ITEM(no_subject, place), 0, true);
    }
    if (!good) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void end_value_table(ValueTableObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    table_free(&self->table);
    type->tp_free(self);
    Py_DECREF(type);
}

static Py_ssize_t count_values(ValueTableObject *self)
{
    return (Py_ssize_t)self->table.values.hashes.count;
}

/* Returns the new tokens that are not ASCII, as a list of bytes. */
static PyObject *give_beyond(const ValueTable *table)
{
    const Tokens *tokens = &table->tokens;
    PyObject *beyond = PyList_New(0);
    for (size_t token = table->read_until; beyond != NULL && token + 1 < tokens->starts.count; token++) {
        if (tokens->is_ascii.at[token]) {
            continue;
        }
        uint32_t start = tokens->starts.at[token];
        PyObject *text = PyBytes_FromStringAndSize((const char *)tokens->text.at + start,
                                                   (Py_ssize_t)(tokens->starts.at[token + 1] - start));
        if (text == NULL || PyList_Append(beyond, text) < 0) {
            Py_CLEAR(beyond);
        }
        Py_XDECREF(text);
    }
    return beyond;
}

/* Asks the caller to describe these tokens. Returns a tuple that nobody else has, with one answer for each. */
static PyObject *ask_described(PyObject *describe, PyObject *tokens)
{
    Py_ssize_t count = PyList_GET_SIZE(tokens);
    PyObject *answer = PyObject_CallOneArg(describe, tokens);
    if (answer == NULL) {
        return NULL;
    }
    PyObject *described = PySequence_Tuple(answer);
    Py_DECREF(answer);
    if (described != NULL && PyTuple_GET_SIZE(described) != count) {
        PyErr_Format(PyExc_ValueError, "expected what %zd tokens hold, not %zd", count, PyTuple_GET_SIZE(described));
        Py_CLEAR(described);
    }
    return described;
}

/* Returns how many values the described tokens hold in all; -1 where one is not described as it should be. */
static Py_ssize_t count_described(PyObject *described)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(described); each++) {
        PyObject *one = PyTuple_GET_ITEM(described, each);
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 3 || !PyTuple_Check(PyTuple_GET_ITEM(one, 0))) {
            PyErr_SetString(PyExc_TypeError, "expected a tuple of values, a label and a word for each token");
            return -1;
        }
        total += PyTuple_GET_SIZE(PyTuple_GET_ITEM(one, 0));
    }
    return total;
}

/* Reads what Python found in tokens beyond ASCII. The bytes stay its own: they last as long as the tuple, which, as those in
 * it, nobody can change while the interpreter's lock is let go. */
static bool read_described(PyObject *tuple, Described *described, Bytes *values)
{
    for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(tuple); each++) {
        PyObject *one = PyTuple_GET_ITEM(tuple, each), *held = PyTuple_GET_ITEM(one, 0);
        long label, word;
        if (!read_number(PyTuple_GET_ITEM(one, 1), LARGEST_LABEL, &label) ||
            !read_number(PyTuple_GET_ITEM(one, 2), UINT16_MAX, &word)) {
            return false;
        }
        described[each] = (Described){values, (size_t)PyTuple_GET_SIZE(held), (uint8_t)label, (uint16_t)word};
        for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(held); place++) {
            if (!read_bytes(PyTuple_GET_ITEM(held, place), values++)) {
                return false;
            }
        }
    }
    return true;
}

static PyObject *give_found(const Found *found)
{
    return Py_BuildValue("NNNNNNNNNNNN", TO_BYTEARRAY(found->ids), TO_BYTEARRAY(found->starts), TO_BYTEARRAY(found->labels),
                         TO_BYTEARRAY(found->words), TO_BYTEARRAY(found->word_counts), TO_BYTEARRAY(found->kinds),
                         TO_BYTEARRAY(found->shapes), TO_BYTEARRAY(found->words_of_value), TO_BYTEARRAY(found->value_words),
                         TO_BYTEARRAY(found->word_owners), TO_BYTEARRAY(found->beyond), TO_BYTEARRAY(found->beyond_text));
}

/* Gathers the values of a block that was scanned, of which `tuple` describes the new tokens beyond ASCII. */
static PyObject *finish(ValueTable *table, PyObject *tuple)
{
    Py_ssize_t total = count_described(tuple);
    if (total < 0) {
        return NULL;
    }
    Described *described = PyMem_Calloc((size_t)PyTuple_GET_SIZE(tuple) + 1, sizeof(*described));
    Bytes *values = PyMem_Calloc((size_t)total + 1, sizeof(*values));
    PyObject *result = NULL;
    if (described == NULL || values == NULL) {
        PyErr_NoMemory();
    } else if (read_described(tuple, described, values)) {
        Found found = {0};
        bool good;
        Py_BEGIN_ALLOW_THREADS
        good = table_finish(table, described, &found);
        Py_END_ALLOW_THREADS
        result = good ? give_found(&found) : PyErr_NoMemory();
        found_free(&found);
    }
    PyMem_Free(described);
    PyMem_Free(values);
    return result;
}

/* Returns the values of each text in a block, and what is to be known of new ones. `describe` is called once, with the new
 * tokens that are not ASCII. All or nothing: where anything fails, even by Ctrl-C, the table is as it was before. */
static PyObject *find(ValueTableObject *self, PyObject *args)
{
    PyObject *block, *separators, *describe;
    Bytes bytes;
    const uint8_t *table;
    if (!PyArg_ParseTuple(args, "SOO", &block, &separators, &describe) || !read_block(block, &bytes) ||
        !read_separators(separators, &table) || !take(self)) {
        return NULL;
    }
    bool good;
    Py_BEGIN_ALLOW_THREADS
    good = table_scan(&self->table, bytes, table);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL, *described = NULL, *beyond = good ? give_beyond(&self->table) : PyErr_NoMemory();
    if (beyond != NULL) {
        described = PyList_GET_SIZE(beyond) ? ask_described(describe, beyond) : PyTuple_New(0);
        Py_DECREF(beyond);
    }
    if (described != NULL) {
        result = finish(&self->table, described);
        Py_DECREF(described);
    }
    if (result == NULL) {
        table_give_up(&self->table);
    }
    self->busy = false;
    return result;
}

/* Returns the numbers of the values in a block that were met before, and the tokens that Python must read, each with a line
 * break behind it. */
static PyObject *find_known(ValueTableObject *self, PyObject *args)
{
    PyObject *block, *separators;
    Bytes bytes;
    const uint8_t *table;
    if (!PyArg_ParseTuple(args, "SO", &block, &separators) || !read_bytes(block, &bytes) ||
        !read_separators(separators, &table) || !take(self)) {
        return NULL;
    }
    IdRows known = {0};
    ByteRows beyond = {0};
    bool good;
    Py_BEGIN_ALLOW_THREADS
    good = table_find_known(&self->table, bytes, table, &known, &beyond);
    Py_END_ALLOW_THREADS
    self->busy = false;
    PyObject *result = good ? Py_BuildValue("NN", TO_BYTEARRAY(known), TO_BYTEARRAY(beyond)) : PyErr_NoMemory();
    rows_free(&known);
    rows_free(&beyond);
    return result;
}

/* Writes the number of one value; one with half a surrogate pair is encoded as Python's blocks are. */
static bool look_up_one(ValueTableObject *self, PyObject *value, int32_t *number)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text != NULL) {
        *number = table_look_up(&self->table, (Bytes){(const uint8_t *)text, (size_t)size});
        return true;
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        return false;
    }
    PyErr_Clear();
    PyObject *encoded = PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass");
    Bytes bytes;
    bool good = encoded != NULL && read_bytes(encoded, &bytes);
    if (good) {
        *number = table_look_up(&self->table, bytes);
    }
    Py_XDECREF(encoded);
    return good;
}

static PyObject *look_up(ValueTableObject *self, PyObject *values)
{
    if (!PyList_Check(values)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of strings");
        return NULL;
    }
    if (!take(self)) {
        return NULL;
    }
    IdRows numbers = {0};
    bool good = true;
    for (Py_ssize_t place = 0; good && place < PyList_GET_SIZE(values); place++) {
        int32_t number = -1;
        PyObject *value = PyList_GET_ITEM(values, place);
        Py_INCREF(value); /* encoding may run Python code, which may change the list */
        good = look_up_one(self, value, &number);
        Py_DECREF(value);
        if (good && !rows_push(&numbers, number)) {
            PyErr_NoMemory();
            good = false;
        }
    }
    PyObject *result = good ? TO_BYTEARRAY(numbers) : NULL;
    rows_free(&numbers);
    self->busy = false;
    return result;
}

static PyMethodDef value_table_methods[] = {
    {"find", (PyCFunction)find, METH_VARARGS, NULL},
    {"find_known", (PyCFunction)find_known, METH_VARARGS, NULL},
    {"look_up", (PyCFunction)look_up, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot value_table_slots[] = {
    {Py_tp_doc, "Values by their numbers: see penstock.writing.compiled."},
    {Py_tp_new, new_value_table},
    {Py_tp_dealloc, end_value_table},
    {Py_tp_methods, value_table_methods},
    {Py_sq_length, count_values},
    {0, NULL},
};

static PyType_Spec value_table_spec = {
    "penstock_core.ValueTable", sizeof(ValueTableObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, value_table_slots,
};

/* ---- Greedy -------------------------------------------------------------------------------------------------------- */

/* The arrays that a `Greedy` looks into and holds as long: the first two for good, the others until the next `allow`. */
enum { WEIGHTS, COVERED, HELD };
enum { ALLOWED, WORTH, SOURCE_OF, LENGTHS, BY_EXCERPT };

/* A loop asks Python now and then, which may come back to the same object, from another thread, too. While it waits in
 * `prepare`, the loop points to no row, and excerpts may be added, of which there is more room then. Otherwise nothing may
 * move below it. Numbers can be read at any time. */
typedef enum { AT_REST, RUNNING, PREPARING } Activity;

/* It is not seen by the garbage collector: it holds nothing but arrays of numbers, which hold no other objects. */
typedef struct {
    PyObject_HEAD
    Greedy greedy;
    Py_buffer held[HELD];
    Py_buffer by_excerpt[BY_EXCERPT];
    Activity activity;
    PyObject *asker; /* while a loop runs: borrowed from its arguments */
} GreedyObject;

static bool may_change(const GreedyObject *self, bool between)
{
    if (self->activity == AT_REST || (between && self->activity == PREPARING)) {
        return true;
    }
    PyErr_SetString(PyExc_RuntimeError, "this Greedy is in the middle of a loop");
    return false;
}

/* Returns the excerpt of this number, which may be any int; NULL for one that was not added, or with an error set. */
static Candidate *find_candidate(const GreedyObject *self, PyObject *object)
{
    int overflow;
    long number = PyLong_AsLongAndOverflow(object, &overflow);
    if (overflow || number < 0 || number > INT32_MAX) {
        return NULL;
    }
    return greedy_find(&self->greedy, (int32_t)number);
}

/* Sets the error that the twin in Python raises. */
static void refuse_unknown(int32_t number)
{
    PyObject *key = PyLong_FromLong(number);
    if (key != NULL) {
        PyErr_SetObject(PyExc_KeyError, key);
        Py_DECREF(key);
    }
}

static PyObject *ask(GreedyObject *self, const char *method, int32_t number)
{
    return PyObject_CallMethod(self->asker, method, "i", (int)number);
}

static bool ask_plain(void *context, int32_t number, int8_t *words)
{
    PyObject *told = ask(context, "plain_words", number);
    if (told == NULL) {
        return false;
    }
    int overflow;
    long many = PyLong_AsLongAndOverflow(told, &overflow);
    Py_DECREF(told);
    if (many == -1 && PyErr_Occurred()) {
        return false;
    }
    *words = overflow > 0 || many > INT8_MAX ? INT8_MAX : many < 0 ? 0 : (int8_t)many;
    return true;
}

static bool ask_shown(void *context, int32_t number, bool *shown)
{
    PyObject *told = ask(context, "is_shown", number);
    if (told == NULL) {
        return false;
    }
    int answer = PyObject_IsTrue(told);
    Py_DECREF(told);
    *shown = answer > 0;
    return answer >= 0;
}

static bool ask_prepare(void *context, int32_t number)
{
    GreedyObject *self = context;
    self->activity = PREPARING;
    PyObject *told = ask(self, "prepare", number);
    self->activity = RUNNING;
    if (told == NULL) {
        return false;
    }
    Py_DECREF(told);
    if (greedy_find(&self->greedy, number) == NULL) {
        refuse_unknown(number);
        return false;
    }
    return true;
}

static PyObject *new_greedy(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"weights", "covered", NULL};
    PyObject *weights, *covered;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO", names, &weights, &covered)) {
        return NULL;
    }
    GreedyObject *self = (GreedyObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->greedy.ask = (Asked){self, ask_plain, ask_shown, ask_prepare};
    if (!open_array(weights, &self->held[WEIGHTS], a_float32, false) ||
        !open_array(covered, &self->held[COVERED], a_float32, true)) {
        Py_DECREF(self);
        return NULL;
    }
    if (self->held[WEIGHTS].len != self->held[COVERED].len) {
        PyErr_SetString(PyExc_ValueError, "expected a weight and a level for each value");
        Py_DECREF(self);
        return NULL;
    }
    self->greedy.weights = self->held[WEIGHTS].buf;
    self->greedy.covered = self->held[COVERED].buf;
    self->greedy.value_count = (size_t)self->held[WEIGHTS].len / sizeof(float);
    self->greedy.raised_bare = PyMem_RawCalloc(self->greedy.value_count + 1, 1);
    if (self->greedy.raised_bare == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void end_greedy(GreedyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    greedy_free(&self->greedy);
    close_arrays(self->held, HELD);
    close_arrays(self->by_excerpt, BY_EXCERPT);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Returns a copy of what is in an array now: its owner may write to it at any time, without the interpreter's lock, too. */
static void *copy_array(const Py_buffer *view)
{
    void *copy = PyMem_Malloc((size_t)view->len + 1);
    if (copy == NULL) {
        PyErr_NoMemory();
    } else if (view->len) {
        memcpy(copy, view->buf, (size_t)view->len);
    }
    return copy;
}

/* Adds excerpts whose values nobody else can write to; each other row is read once. */
static bool add_candidates(GreedyObject *self, const Py_buffer *views, const int32_t *values)
{
    const int32_t *numbers = views[0].buf, *sources = views[1].buf, *costs = views[2].buf;
    const int64_t *ends = views[3].buf;
    const uint8_t *has_parts = views[5].buf;
    const int8_t *plain_words = views[6].buf;
    size_t count = (size_t)views[0].len / sizeof(int32_t), value_count = (size_t)views[4].len / sizeof(int32_t);
    if ((size_t)views[1].len / sizeof(int32_t) != count || (size_t)views[2].len / sizeof(int32_t) != count ||
        (size_t)views[3].len / sizeof(int64_t) != count || (size_t)views[5].len != count || (size_t)views[6].len != count) {
        PyErr_SetString(PyExc_ValueError, "expected a row for each excerpt");
        return false;
    }
    for (size_t place = 0; place < value_count; place++) {
        if (values[place] < 0 || (size_t)values[place] >= self->greedy.value_count) {
            PyErr_Format(PyExc_ValueError, "there is no value %d", (int)values[place]);
            return false;
        }
    }
    int64_t start = 0;
    for (size_t place = 0; place < count; place++) {
        int32_t number = numbers[place], cost = costs[place];
        int64_t end = ends[place];
        bool is_there = self->by_excerpt[ALLOWED].obj == NULL || (size_t)number < self->greedy.excerpt_count;
        if (number < 0 || number > LARGEST_NUMBER || !is_there) {
            PyErr_Format(PyExc_ValueError, "there is no excerpt %d", (int)number);
            return false;
        }
        if (cost < 1) {
            PyErr_Format(PyExc_ValueError, "an excerpt takes a token or more, not %d", (int)cost);
            return false;
        }
        if (end < start || (size_t)end > value_count) {
            PyErr_SetString(PyExc_ValueError, "expected ends that grow, within the values");
            return false;
        }
        if (greedy_find(&self->greedy, number) == NULL &&
            !greedy_add(&self->greedy, number, sources[place], cost, values + start, (size_t)(end - start), has_parts[place],
                        plain_words[place])) {
            PyErr_NoMemory();
            return false;
        }
        start = end;
    }
    return true;
}

static PyObject *add(GreedyObject *self, PyObject *rows)
{
    const Element elements[7] = {an_int32, an_int32, an_int32, an_int64, an_int32, a_flag, an_int8};
    Py_buffer views[7] = {{0}};
    if (!PyTuple_Check(rows) || PyTuple_GET_SIZE(rows) != 7) {
        PyErr_SetString(PyExc_TypeError, "expected seven arrays");
        return NULL;
    }
    bool good = true;
    for (int place = 0; good && place < 7; place++) {
        good = open_array(PyTuple_GET_ITEM(rows, place), &views[place], elements[place], false);
    }
    int32_t *values = good && may_change(self, true) ? copy_array(&views[4]) : NULL;
    good = values != NULL && add_candidates(self, views, values);
    PyMem_Free(values);
    close_arrays(views, 7);
    if (!good) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Returns those of these excerpts that were not added yet. */
static PyObject *missing(GreedyObject *self, PyObject *object)
{
    Py_buffer view = {0};
    if (!open_array(object, &view, an_int32, false)) {
        return NULL;
    }
    const int32_t *numbers = view.buf;
    ROWS(int32_t) unknown = {0};
    bool good = true;
    for (size_t place = 0; good && place < (size_t)view.len / sizeof(int32_t); place++) {
        if (greedy_find(&self->greedy, numbers[place]) == NULL) {
            good = rows_push(&unknown, numbers[place]);
        }
    }
    PyBuffer_Release(&view);
    PyObject *result = good ? TO_BYTEARRAY(unknown) : PyErr_NoMemory();
    rows_free(&unknown);
    return result;
}

/* Takes in that the levels of these values were raised by the caller. */
static PyObject *notice(GreedyObject *self, PyObject *object)
{
    Py_buffer view = {0};
    if (!open_array(object, &view, an_int32, false)) {
        return NULL;
    }
    bool good = may_change(self, true);
    if (good) {
        greedy_notice(&self->greedy, view.buf, (size_t)view.len / sizeof(int32_t));
    }
    PyBuffer_Release(&view);
    if (!good) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *set_header(GreedyObject *self, PyObject *args)
{
    int source, tokens;
    if (!PyArg_ParseTuple(args, "ii", &source, &tokens) || !may_change(self, true)) {
        return NULL;
    }
    if (tokens < 0) {
        PyErr_Format(PyExc_ValueError, "a header takes no tokens or more, not %d", tokens);
        return NULL;
    }
    if (!greedy_set_header(&self->greedy, source, tokens)) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

/* Whether these arrays have a row for each excerpt, and a row for each that was added. */
static bool fit_excerpts(const GreedyObject *self, const Py_buffer *views)
{
    size_t excerpts = (size_t)views[ALLOWED].len;
    bool fit = (views[WORTH].obj == NULL || (size_t)views[WORTH].len / sizeof(float) == excerpts) &&
               (size_t)views[SOURCE_OF].len / sizeof(int32_t) >= excerpts &&
               (size_t)views[LENGTHS].len / sizeof(int32_t) >= excerpts;
    for (size_t place = 0; fit && place < self->greedy.candidates.count; place++) {
        fit = (size_t)self->greedy.candidates.at[place].number < excerpts;
    }
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "expected a row for each excerpt");
    }
    return fit;
}

/* Takes the excerpts that may be chosen, what each is worth beside its values, and the rows of all excerpts. Where an array is
 * refused, those before stay. */
static PyObject *allow(GreedyObject *self, PyObject *args)
{
    PyObject *allowed, *worth, *source_of, *lengths;
    Py_buffer views[BY_EXCERPT] = {{0}};
    if (!PyArg_ParseTuple(args, "OOOO", &allowed, &worth, &source_of, &lengths)) {
        return NULL;
    }
    if (!open_array(allowed, &views[ALLOWED], a_flag, false) ||
        (worth != Py_None && !open_array(worth, &views[WORTH], a_float32, false)) ||
        !open_array(source_of, &views[SOURCE_OF], an_int32, false) || !open_array(lengths, &views[LENGTHS], an_int32, false) ||
        !may_change(self, false) || !fit_excerpts(self, views)) {
        close_arrays(views, BY_EXCERPT);
        return NULL;
    }
    Greedy *greedy = &self->greedy;
    greedy->excerpt_count = (size_t)views[ALLOWED].len;
    greedy->allowed = views[ALLOWED].buf;
    greedy->worth = views[WORTH].buf;
    greedy->source_of = views[SOURCE_OF].buf;
    greedy->lengths = views[LENGTHS].buf;
    Py_buffer before[BY_EXCERPT];
    memcpy(before, self->by_excerpt, sizeof(before));
    memcpy(self->by_excerpt, views, sizeof(views));
    close_arrays(before, BY_EXCERPT);
    Py_RETURN_NONE;
}

/* Begins a loop; what it asks, this object answers. */
static bool start_loop(GreedyObject *self, PyObject *asker)
{
    if (!may_change(self, false)) {
        return false;
    }
    self->activity = RUNNING;
    self->asker = asker;
    return true;
}

/* Ends a loop. */
static PyObject *end_loop(GreedyObject *self, Outcome outcome)
{
    self->activity = AT_REST;
    self->asker = NULL;
    if (outcome == 0) {
        return PyErr_NoMemory();
    }
    if (outcome < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Whether these are excerpts that were added. */
static bool is_pool(const GreedyObject *self, const int32_t *pool, size_t count)
{
    for (size_t place = 0; place < count; place++) {
        if (greedy_find(&self->greedy, pool[place]) == NULL) {
            refuse_unknown(pool[place]);
            return false;
        }
    }
    return true;
}

static PyObject *begin(GreedyObject *self, PyObject *args)
{
    PyObject *pool, *gains, *asker, *result = NULL;
    Py_buffer views[2] = {{0}};
    int32_t *numbers = NULL; /* copies: what the loop asks may write to the arrays */
    float *first_gains = NULL;
    if (!PyArg_ParseTuple(args, "OOO", &pool, &gains, &asker)) {
        return NULL;
    }
    if (open_array(pool, &views[0], an_int32, false) && open_array(gains, &views[1], a_float32, false)) {
        size_t count = length_of(&views[0]);
        if (views[0].len != views[1].len) {
            PyErr_SetString(PyExc_ValueError, "expected a gain for each excerpt");
        } else if ((numbers = copy_array(&views[0])) != NULL && (first_gains = copy_array(&views[1])) != NULL &&
                   is_pool(self, numbers, count) && start_loop(self, asker)) {
            result = end_loop(self, greedy_begin(&self->greedy, numbers, first_gains, count));
        }
    }
    PyMem_Free(numbers);
    PyMem_Free(first_gains);
    close_arrays(views, 2);
    return result;
}

static PyObject *run(GreedyObject *self, PyObject *args)
{
    long long budget;
    PyObject *asker;
    if (!PyArg_ParseTuple(args, "LO", &budget, &asker) || !start_loop(self, asker)) {
        return NULL;
    }
    return end_loop(self, greedy_run(&self->greedy, budget > 0 ? budget : 0));
}

static PyObject *choose_one(GreedyObject *self, PyObject *args)
{
    PyObject *number, *asker;
    if (!PyArg_ParseTuple(args, "OO", &number, &asker)) {
        return NULL;
    }
    Candidate *candidate = find_candidate(self, number);
    if (candidate == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, number);
        }
        return NULL;
    }
    return start_loop(self, asker) ? end_loop(self, greedy_choose(&self->greedy, candidate)) : NULL;
}

/* Returns what an excerpt that was added would take now, its header included. */
static PyObject *price(GreedyObject *self, PyObject *number)
{
    const Candidate *candidate = find_candidate(self, number);
    if (candidate == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, number);
        }
        return NULL;
    }
    return PyLong_FromLongLong(greedy_price(&self->greedy, candidate));
}

static PyObject *is_chosen(GreedyObject *self, PyObject *number)
{
    const Candidate *candidate = find_candidate(self, number);
    if (candidate == NULL && PyErr_Occurred()) {
        return NULL;
    }
    return PyBool_FromLong(candidate != NULL && candidate->is_chosen);
}

static PyObject *drop_last(GreedyObject *self, PyObject *Py_UNUSED(none))
{
    return may_change(self, false) ? PyBool_FromLong(greedy_drop_last(&self->greedy)) : NULL;
}

/* Returns the excerpts chosen so far, first chosen first. */
static PyObject *give_order(GreedyObject *self, void *Py_UNUSED(closure))
{
    PyObject *list = PyList_New(0); /* which may run Python code, and that may choose another: see `path_parts` */
    for (size_t place = 0; list != NULL && place < self->greedy.order.count; place++) {
        PyObject *number = PyLong_FromLong(self->greedy.order.at[place]);
        if (number == NULL || PyList_Append(list, number) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(number);
    }
    return list;
}

static PyObject *give_tokens(GreedyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(self->greedy.tokens);
}

static PyMethodDef greedy_methods[] = {
    {"add", (PyCFunction)add, METH_O, NULL},
    {"missing", (PyCFunction)missing, METH_O, NULL},
    {"notice", (PyCFunction)notice, METH_O, NULL},
    {"set_header", (PyCFunction)set_header, METH_VARARGS, NULL},
    {"allow", (PyCFunction)allow, METH_VARARGS, NULL},
    {"begin", (PyCFunction)begin, METH_VARARGS, NULL},
    {"run", (PyCFunction)run, METH_VARARGS, NULL},
    {"choose", (PyCFunction)choose_one, METH_VARARGS, NULL},
    {"price", (PyCFunction)price, METH_O, NULL},
    {"is_chosen", (PyCFunction)is_chosen, METH_O, NULL},
    {"drop_last", (PyCFunction)drop_last, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef greedy_fields[] = {
    {"order", (getter)give_order, NULL, NULL, NULL},
    {"tokens", (getter)give_tokens, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot greedy_slots[] = {
    {Py_tp_doc, "Excerpts by what they add: see penstock.writing.greedy."},
    {Py_tp_new, new_greedy},
    {Py_tp_dealloc, end_greedy},
    {Py_tp_methods, greedy_methods},
    {Py_tp_getset, greedy_fields},
    {0, NULL},
};

static PyType_Spec greedy_spec = {
    "penstock_core.Greedy", sizeof(GreedyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, greedy_slots,
};

/* ---- Anchors ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Anchors anchors;
} AnchorsObject;

static PyObject *new_anchors(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"anchors", NULL};
    PyObject *given;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O!", names, &PyList_Type, &given)) {
        return NULL;
    }
    AnchorsObject *self = (AnchorsObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    size_t total = 0;
    Bytes bytes;
    bool good = true;
    for (Py_ssize_t place = 0; good && place < PyList_Size(given); place++) {
        good = read_bytes(PyList_GetItem(given, place), &bytes);
        total += good ? bytes.size : 0;
        if (good && (bytes.size < SHORTEST_ANCHOR || total > INT32_MAX)) {
            PyErr_SetString(PyExc_ValueError, "an anchor has at least two bytes, and all of them have less than 2 GB");
            good = false;
        }
        good = good && anchors_add(&self->anchors, bytes.at, bytes.size);
    }
    if (!good || !anchors_prepare(&self->anchors)) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void end_anchors(AnchorsObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    anchors_free(&self->anchors);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *give_hits(const AnchorHits *hits)
{
    PyObject *list = PyList_New((Py_ssize_t)hits->count);
    for (size_t place = 0; list != NULL && place < hits->count; place++) {
        const AnchorHit *hit = &hits->at[place];
        PyObject *one = Py_BuildValue("Inn", hit->which, (Py_ssize_t)hit->start, (Py_ssize_t)hit->end);
        if (one == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)place, one);
        }
    }
    return list;
}

/* Puts U+FFFD in the place of each half of a surrogate pair, in bytes that nobody else has. */
static void replace_surrogates(Bytes bytes)
{
    uint8_t *at = (uint8_t *)bytes.at, *end = at + bytes.size;
    while (at < end && (at = memchr(at, 0xed, (size_t)(end - at))) != NULL) {
        if (end - at >= 3 && at[1] >= 0xa0) {
            memcpy(at, "\xef\xbf\xbd", 3);
        }
        at++;
    }
}

/* Returns which anchors stand in a text, from which character on and up to which. */
static PyObject *find_anchors(AnchorsObject *self, PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "expected a string");
        return NULL;
    }
    PyObject *encoded = NULL;
    Bytes bytes;
    if (PyUnicode_IS_ASCII(text)) {
        bytes = (Bytes){PyUnicode_1BYTE_DATA(text), (size_t)PyUnicode_GET_LENGTH(text)};
    } else {
        encoded = PyUnicode_AsUTF8String(text);
        bool halves = encoded == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError);
        if (halves) {
            PyErr_Clear();
            encoded = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
        }
        if (encoded == NULL || !read_bytes(encoded, &bytes)) {
            Py_XDECREF(encoded);
            return NULL;
        }
        if (halves) {
            replace_surrogates(bytes);
        }
    }
    AnchorHits hits = {0};
    PyObject *result = anchors_find(&self->anchors, bytes.at, bytes.size, encoded == NULL, &hits) ? give_hits(&hits) : PyErr_NoMemory();
    rows_free(&hits);
    Py_XDECREF(encoded);
    return result;
}

static PyMethodDef anchors_methods[] = {
    {"find", (PyCFunction)find_anchors, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot anchors_slots[] = {
    {Py_tp_doc, "Where anchors stand in texts: see penstock.redaction.anchors."},
    {Py_tp_new, new_anchors},
    {Py_tp_dealloc, end_anchors},
    {Py_tp_methods, anchors_methods},
    {0, NULL},
};

static PyType_Spec anchors_spec = {
    "penstock_core.Anchors", sizeof(AnchorsObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, anchors_slots,
};

/* ---- Functions ----------------------------------------------------------------------------------------------------- */

/* Returns -1 for a text that is not ASCII. */
static PyObject *plain_words(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *text;
    int most;
    if (!PyArg_ParseTuple(args, "Ui", &text, &most)) {
        return NULL;
    }
    if (most < 1 || most > MOST_PLAIN_WORDS) {
        PyErr_Format(PyExc_ValueError, "up to %d words are counted", MOST_PLAIN_WORDS);
        return NULL;
    }
    if (!PyUnicode_IS_ASCII(text)) {
        return PyLong_FromLong(-1);
    }
    return PyLong_FromLong(count_plain_words(PyUnicode_1BYTE_DATA(text), (size_t)PyUnicode_GET_LENGTH(text), most));
}

/* Returns lines of the text joined with line breaks. */
static PyObject *join_lines(PyObject *text, PyObject *line_break, const Line *lines, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count), *joined = NULL;
    for (size_t each = 0; list != NULL && each < count; each++) {
        PyObject *line = PyUnicode_Substring(text, lines[each].start, lines[each].end);
        if (line == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)each, line);
        }
    }
    if (list != NULL) {
        joined = PyUnicode_Join(line_break, list);
        Py_DECREF(list);
    }
    return joined;
}

/* Returns a piece as a string, and whether it stands in the text letter for letter. */
static PyObject *read_piece(PyObject *text, PyObject *line_break, const Cut *cut, const Piece *piece, bool *stands)
{
    const Line *lines = cut->lines.at + piece->first_line;
    *stands = true;
    for (size_t each = 1; each < piece->lines; each++) {
        *stands &= lines[each].start == lines[each - 1].end + 1;
    }
    return *stands ? PyUnicode_Substring(text, piece->start, piece->end)
                   : join_lines(text, line_break, lines, piece->lines);
}

/* Returns the excerpts of a text, and where each stands in it; -1 for one that does not stand in it letter for letter. */
static PyObject *cut(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *text;
    int items, spoken;
    if (!PyArg_ParseTuple(args, "Upp", &text, &items, &spoken)) {
        return NULL;
    }
    Cut found = {0};
    bool good = cut_text(text, items, spoken, &found);
    PyObject *line_break = PyUnicode_FromStringAndSize("\n", 1);
    PyObject *pieces = good ? PyList_New((Py_ssize_t)found.pieces.count) : PyErr_NoMemory();
    PyObject *places = PyList_New((Py_ssize_t)found.pieces.count);
    for (size_t each = 0; line_break != NULL && pieces != NULL && places != NULL && each < found.pieces.count; each++) {
        bool stands;
        PyObject *piece = read_piece(text, line_break, &found, &found.pieces.at[each], &stands);
        if (piece == NULL) {
            Py_CLEAR(pieces);
            break;
        }
        PyList_SET_ITEM(pieces, (Py_ssize_t)each, piece);
        PyObject *place = PyLong_FromSsize_t(stands ? found.pieces.at[each].start : -1);
        if (place == NULL) {
            Py_CLEAR(places);
            break;
        }
        PyList_SET_ITEM(places, (Py_ssize_t)each, place);
    }
    cut_free(&found);
    Py_XDECREF(line_break);
    if (line_break == NULL || pieces == NULL || places == NULL) {
        Py_XDECREF(pieces);
        Py_XDECREF(places);
        return NULL;
    }
    return Py_BuildValue("NN", pieces, places);
}

/* Returns where each piece stands in a text, within so many characters behind the one before it; -1 for nowhere. */
static PyObject *find_each(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *text, *pieces;
    Py_ssize_t farthest, after = 0;
    if (!PyArg_ParseTuple(args, "UO!n", &text, &PyTuple_Type, &pieces, &farthest)) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(pieces);
    PyObject *places = PyList_New(count);
    for (Py_ssize_t each = 0; places != NULL && each < count; each++) {
        PyObject *piece = PyTuple_GET_ITEM(pieces, each);
        if (!PyUnicode_Check(piece)) {
            PyErr_SetString(PyExc_TypeError, "expected strings");
            Py_DECREF(places);
            return NULL;
        }
        Py_ssize_t length = PyUnicode_GET_LENGTH(piece);
        Py_ssize_t end = farthest < PY_SSIZE_T_MAX - after ? after + farthest : PY_SSIZE_T_MAX;
        Py_ssize_t found = PyUnicode_Find(text, piece, after, end, 1);
        PyObject *place = found == -2 ? NULL : PyLong_FromSsize_t(found);
        if (place == NULL) {
            Py_DECREF(places);
            return NULL;
        }
        after = found >= 0 ? found + length : after;
        PyList_SET_ITEM(places, each, place);
    }
    return places;
}

static PyObject *give_parts(const PathParts *parts)
{
    PyObject *list = PyList_New((Py_ssize_t)parts->count);
    for (size_t place = 0; list != NULL && place < parts->count; place++) {
        const PathPart *part = &parts->at[place];
        PyObject *text = PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, part->at, (Py_ssize_t)part->size);
        if (text == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)place, text);
        }
    }
    return list;
}

/* Returns what each text tells in its paths; None for one that is not ASCII. To make a list may collect garbage, which runs Python
 * code up to version 3.11; it may change the list of texts. */
static PyObject *path_parts(PyObject *Py_UNUSED(module), PyObject *texts)
{
    if (!PyList_Check(texts)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of strings");
        return NULL;
    }
    PyObject *result = PyList_New(0);
    PathParts parts = {0};
    for (Py_ssize_t place = 0; result != NULL && place < PyList_GET_SIZE(texts); place++) {
        PyObject *text = Py_NewRef(PyList_GET_ITEM(texts, place)), *found = NULL;
        parts.count = 0;
        if (!PyUnicode_Check(text)) {
            PyErr_SetString(PyExc_TypeError, "expected strings");
        } else if (!PyUnicode_IS_ASCII(text)) {
            found = Py_NewRef(Py_None);
        } else if (find_path_parts(PyUnicode_1BYTE_DATA(text), (size_t)PyUnicode_GET_LENGTH(text), &parts)) {
            found = give_parts(&parts);
        } else {
            PyErr_NoMemory();
        }
        if (found == NULL || PyList_Append(result, found) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(found);
        Py_DECREF(text);
    }
    rows_free(&parts);
    return result;
}

/* Fills what stands beside values; arrays in the order of `ExcerptRows`, then of `BesideRows`. */
static bool fill_beside(const Py_buffer *views)
{
    Py_ssize_t rows[15];
    for (int place = 0; place < 15; place++) {
        rows[place] = views[place].len / views[place].itemsize;
    }
    Py_ssize_t excerpts = rows[0] - 1, values = rows[2];
    bool fit = excerpts >= 0 && excerpts <= INT32_MAX && rows[3] >= values && rows[4] >= values && rows[5] >= excerpts &&
               rows[6] >= excerpts && rows[7] >= excerpts;
    for (int place = 9; place < 15; place++) {
        fit &= rows[place] == rows[8];
    }
    if (fit) {
        ExcerptRows looked_at = {(size_t)excerpts, (size_t)rows[1], (size_t)values, views[0].buf, views[1].buf,
                                 views[2].buf,     views[3].buf,    views[4].buf,   views[5].buf, views[6].buf,
                                 views[7].buf};
        BesideRows filled = {(size_t)rows[8], views[8].buf,  views[9].buf,  views[10].buf,
                             views[11].buf,   views[12].buf, views[13].buf, views[14].buf};
        int outcome;
        Py_BEGIN_ALLOW_THREADS
        outcome = look_beside(&looked_at, &filled);
        Py_END_ALLOW_THREADS
        if (outcome == 0) {
            PyErr_NoMemory();
            return false;
        }
        fit = outcome > 0;
    }
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "expected rows that fit each other");
    }
    return fit;
}

static PyObject *beside(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer views[15] = {{0}};
    PyObject *rows, *filled;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &rows, &PyTuple_Type, &filled)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(rows) != 8 || PyTuple_GET_SIZE(filled) != 7) {
        PyErr_SetString(PyExc_TypeError, "expected eight arrays and seven arrays");
        return NULL;
    }
    bool good = true;
    for (int place = 0; good && place < 15; place++) {
        PyObject *array = place < 8 ? PyTuple_GET_ITEM(rows, place) : PyTuple_GET_ITEM(filled, place - 8);
        good = open_array(array, &views[place], place == 4 ? a_flag : an_int32, place >= 8);
    }
    good = good && fill_beside(views);
    close_arrays(views, 15);
    if (!good) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Whether a text holds a word: 1 or 0; -1 with an exception. */
static int holds(PyObject *text, PyObject *word)
{
    if (PyUnicode_KIND(text) == PyUnicode_1BYTE_KIND && PyUnicode_KIND(word) == PyUnicode_1BYTE_KIND) {
        return holds_word(PyUnicode_1BYTE_DATA(text), (size_t)PyUnicode_GET_LENGTH(text), PyUnicode_1BYTE_DATA(word),
                          (size_t)PyUnicode_GET_LENGTH(word));
    }
    return PyUnicode_Contains(text, word);
}

static bool are_texts(PyObject *some)
{
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(some); place++) {
        PyObject *text = PyTuple_GET_ITEM(some, place);
        if (!PyUnicode_Check(text)) {
            PyErr_Format(PyExc_TypeError, "expected a str, not %.80s", Py_TYPE(text)->tp_name);
            return false;
        }
    }
    return true;
}

/* Returns for each word a list of the places of those texts that hold it. Looks for all words in one text after the other, since a
 * text stays in the processor's caches for so long. Texts and words are tuples, which nobody can change meanwhile. */
static PyObject *find_holding(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *texts, *words;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &texts, &PyTuple_Type, &words) || !are_texts(texts) || !are_texts(words)) {
        return NULL;
    }
    PyObject *holding = PyTuple_New(PyTuple_GET_SIZE(words));
    bool good = holding != NULL;
    for (Py_ssize_t word = 0; good && word < PyTuple_GET_SIZE(words); word++) {
        PyObject *places = PyList_New(0);
        good = places != NULL;
        PyTuple_SET_ITEM(holding, word, places);
    }
    for (Py_ssize_t text = 0; good && text < PyTuple_GET_SIZE(texts); text++) {
        PyObject *place = NULL;
        for (Py_ssize_t word = 0; good && word < PyTuple_GET_SIZE(words); word++) {
            int held = holds(PyTuple_GET_ITEM(texts, text), PyTuple_GET_ITEM(words, word));
            good = held >= 0;
            if (held > 0) {
                place = place == NULL ? PyLong_FromSsize_t(text) : place;
                good = place != NULL && PyList_Append(PyTuple_GET_ITEM(holding, word), place) == 0;
            }
        }
        Py_XDECREF(place);
    }
    if (!good) {
        Py_CLEAR(holding);
    }
    return holding;
}

/* Returns how many items at the start of two lists or tuples are the same objects. */
static PyObject *count_same(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *one, *other;
    if (!PyArg_ParseTuple(args, "OO", &one, &other)) {
        return NULL;
    }
    if (!(PyList_Check(one) || PyTuple_Check(one)) || !(PyList_Check(other) || PyTuple_Check(other))) {
        PyErr_SetString(PyExc_TypeError, "expected lists or tuples");
        return NULL;
    }
    PyObject **items = PySequence_Fast_ITEMS(one), **others = PySequence_Fast_ITEMS(other);
    Py_ssize_t size = PySequence_Fast_GET_SIZE(one), other_size = PySequence_Fast_GET_SIZE(other), same = 0;
    size = size < other_size ? size : other_size;
    while (same < size && items[same] == others[same]) {
        same++;
    }
    return PyLong_FromSsize_t(same);
}

static PyMethodDef functions[] = {
    {"add_leaves", call_add_leaves, METH_VARARGS, NULL},
    {"beside", beside, METH_VARARGS, NULL},
    {"count_equal", call_count_equal, METH_VARARGS, NULL},
    {"count_fortunes", call_count_fortunes, METH_VARARGS, NULL},
    {"count_mentions", call_count_mentions, METH_VARARGS, NULL},
    {"count_owners", call_count_owners, METH_VARARGS, NULL},
    {"count_same", count_same, METH_VARARGS, NULL},
    {"count_sources", call_count_sources, METH_VARARGS, NULL},
    {"cut", cut, METH_VARARGS, NULL},
    {"find_each", find_each, METH_VARARGS, NULL},
    {"find_holding", find_holding, METH_VARARGS, NULL},
    {"find_least_of_most", call_find_least_of_most, METH_VARARGS, NULL},
    {"make_shares", call_make_shares, METH_VARARGS, NULL},
    {"path_parts", path_parts, METH_O, NULL},
    {"plain_words", plain_words, METH_VARARGS, NULL},
    {"score_rule", call_score_rule, METH_VARARGS, NULL},
    {"squash", call_squash, METH_VARARGS, NULL},
    {"sum_lacks", call_sum_lacks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static bool add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    bool good = type != NULL && PyModule_AddObjectRef(module, name, type) == 0;
    Py_XDECREF(type);
    return good;
}

/* Whether there is an interpreter's lock. One that can do without turns it on when it loads a module that needs it, unless it is
 * told not to (`PYTHON_GIL=0`): then this module is not loaded. */
static bool has_lock(void)
{
    PyObject *ask = PySys_GetObject("_is_gil_enabled"), *told = NULL; /* borrowed; NULL before Python 3.13 */
    if (ask == NULL) {
        return true;
    }
    told = PyObject_CallNoArgs(ask);
    int answer = told != NULL ? PyObject_IsTrue(told) : -1;
    Py_XDECREF(told);
    if (answer == 0) {
        PyErr_SetString(PyExc_ImportError, "penstock_core needs the interpreter's lock, which is turned off");
    }
    return answer > 0;
}

static int fill_module(PyObject *module)
{
    if (!has_lock()) {
        return -1;
    }
    values_prepare();
    bool good = add_type(module, "ValueTable", &value_table_spec) && add_type(module, "Greedy", &greedy_spec) &&
                add_type(module, "Anchors", &anchors_spec) && PyModule_AddIntConstant(module, "INTERFACE", 5) == 0;
    return good ? 0 : -1;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "penstock_core", "The inner loops of Penstock, compiled.", 0, functions, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_penstock_core(void)
{
    return PyModuleDef_Init(&definition);
}
