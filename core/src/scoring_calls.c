/* Opens the arrays that Python passes, checks that they are as long as they have to be, and calls `scoring.h` without the
 * interpreter's lock. What does not fit raises ValueError: nothing beyond the arrays is ever read or written.
 */
#include "scoring_calls.h"

#include "arrays.h"
#include "scoring.h"
#include "sharing.h"

enum { MOST_ARRAYS = 19 };

/* An array that is expected. */
typedef struct {
    const Element *element;
    int dimensions;
    bool written;
} Expected;

typedef struct {
    Py_buffer views[MOST_ARRAYS];
    int held;
} Arrays;

/* Takes hold of all arguments. Returns false and holds none where one is no array as expected. */
static bool hold(PyObject *args, const Expected *expected, int count, Arrays *arrays)
{
    arrays->held = 0;
    if (PyTuple_GET_SIZE(args) != count) {
        PyErr_Format(PyExc_TypeError, "expected %d arrays", count);
        return false;
    }
    for (int place = 0; place < count; place++) {
        const Expected *one = &expected[place];
        if (!open_table(PyTuple_GET_ITEM(args, place), &arrays->views[place], *one->element, one->dimensions, one->written)) {
            close_arrays(arrays->views, arrays->held);
            return false;
        }
        arrays->held++;
    }
    return true;
}

static size_t length(const Arrays *arrays, int place)
{
    return length_of(&arrays->views[place]);
}

/* Reads runs, whose edges are one array and whose rows another one. Returns false where there is no edge. */
static bool read_runs(const Arrays *arrays, int edges, int rows, Runs *runs)
{
    size_t count = length(arrays, edges);
    *runs = (Runs){arrays->views[edges].buf, arrays->views[rows].buf, count - 1, length(arrays, rows)};
    return count > 0;
}

static PyObject *finish(Arrays *arrays, bool fit)
{
    close_arrays(arrays->views, arrays->held);
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "expected rows that fit each other");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Whether elements of an array have one byte. False for what is no array, which `hold` refuses. */
static bool has_bytes(PyObject *object)
{
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_ND | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        return false;
    }
    bool has = view.itemsize == 1;
    PyBuffer_Release(&view);
    return has;
}

/* starts, ids, weights, covered, excerpts, sums. The excerpts are numbers, with a sum for each, or flags, with one for every
 * excerpt. */
PyObject *call_sum_lacks(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { STARTS, IDS, WEIGHTS, COVERED, EXCERPTS, SUMS, COUNT };
    bool flags = PyTuple_GET_SIZE(args) == COUNT && has_bytes(PyTuple_GET_ITEM(args, EXCERPTS));
    const Expected expected[COUNT] = {
        {&an_int32, 1, false},  {&an_int32, 1, false},                       {&a_float32, 1, false},
        {&a_float32, 1, false}, {flags ? &a_flag : &an_int32, 1, false}, {&a_float32, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    Runs excerpts;
    const Py_buffer *views = arrays.views;
    Values values = {views[WEIGHTS].buf, views[COVERED].buf, length(&arrays, WEIGHTS)};
    size_t count = length(&arrays, EXCERPTS);
    bool fit = read_runs(&arrays, STARTS, IDS, &excerpts) && length(&arrays, COVERED) == values.count &&
               length(&arrays, SUMS) == count && (!flags || count == excerpts.count);
    float *known = fit && flags ? PyMem_RawMalloc((values.count + 1) * sizeof(*known)) : NULL;
    if (fit && flags && known == NULL) {
        close_arrays(arrays.views, arrays.held);
        return PyErr_NoMemory();
    }
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        fit = flags ? sum_allowed_lacks(&excerpts, &values, views[EXCERPTS].buf, known, views[SUMS].buf)
                    : sum_lacks(&excerpts, &values, views[EXCERPTS].buf, count, views[SUMS].buf);
        Py_END_ALLOW_THREADS
    }
    PyMem_RawFree(known);
    return finish(&arrays, fit);
}

/* features and thresholds of the questions, the questions of trees, their leaves (edges and rows each), table, totals. */
PyObject *call_add_leaves(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { FEATURES, THRESHOLDS, ASKED_EDGES, ASKED, LEAF_EDGES, LEAVES, TABLE, TOTALS, COUNT };
    static const Expected expected[COUNT] = {
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false},
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 2, false}, {&an_int32, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    size_t count = length(&arrays, TOTALS), questions = length(&arrays, FEATURES);
    size_t features = (size_t)arrays.views[TABLE].shape[0];
    Trees trees = {arrays.views[FEATURES].buf, arrays.views[THRESHOLDS].buf, questions, features, {0}, {0}};
    bool fit = length(&arrays, THRESHOLDS) == questions && (size_t)arrays.views[TABLE].shape[1] == count &&
               read_runs(&arrays, ASKED_EDGES, ASKED, &trees.asked) && read_runs(&arrays, LEAF_EDGES, LEAVES, &trees.leaves) &&
               trees.asked.count == trees.leaves.count;
    uint8_t *answers = fit ? PyMem_RawMalloc(WORKERS * trees.question_count * AT_ONCE + 1) : NULL;
    if (fit && answers == NULL) {
        close_arrays(arrays.views, arrays.held);
        return PyErr_NoMemory();
    }
    if (fit) {
        const Py_buffer *views = arrays.views;
        Py_BEGIN_ALLOW_THREADS
        fit = add_leaves(&trees, views[TABLE].buf, count, answers, views[TOTALS].buf);
        Py_END_ALLOW_THREADS
    }
    PyMem_RawFree(answers);
    return finish(&arrays, fit);
}

/* edges and values of the sources, place_of, flags, voices, messages; by_voice, last_by_voice, flagged. */
PyObject *call_count_mentions(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { EDGES, VALUES, PLACE_OF, FLAGS, VOICES, MESSAGES, BY_VOICE, LAST_BY_VOICE, FLAGGED, COUNT };
    static const Expected expected[COUNT] = {
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false}, {&a_flag, 1, false}, {&an_int8, 1, false},
        {&an_int32, 1, false}, {&an_int32, 2, true},  {&an_int32, 2, true},  {&an_int32, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    const Py_buffer *views = arrays.views;
    const Py_ssize_t *cells = views[BY_VOICE].shape, *last_cells = views[LAST_BY_VOICE].shape;
    Mentions mentions = {.place_of = views[PLACE_OF].buf, .flags = views[FLAGS].buf, .value_count = length(&arrays, PLACE_OF),
                         .voices = views[VOICES].buf, .messages = views[MESSAGES].buf};
    bool fit = last_cells[0] == cells[0] && last_cells[1] == cells[1] &&
               length(&arrays, FLAGS) == mentions.value_count && read_runs(&arrays, EDGES, VALUES, &mentions.sources);
    if (fit) {
        size_t sources = mentions.sources.count;
        mentions.place_count = (size_t)cells[0];
        mentions.voice_count = (size_t)cells[1];
        fit = length(&arrays, VOICES) == sources && length(&arrays, MESSAGES) == sources &&
              length(&arrays, FLAGGED) == sources;
    }
    bool shared = fit && mentions.sources.row_count >= SHARED_FROM;
    int32_t *others = shared ? PyMem_RawCalloc(2 * mentions.place_count * mentions.voice_count + 1, sizeof(*others)) : NULL;
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        fit = count_mentions(&mentions, others, views[BY_VOICE].buf, views[LAST_BY_VOICE].buf, views[FLAGGED].buf);
        Py_END_ALLOW_THREADS
    }
    PyMem_RawFree(others); /* without them, one thread counts */
    return finish(&arrays, fit);
}

/* words, edges and owners of a piece, wanted, times; found. */
PyObject *call_count_owners(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { WORDS, EDGES, OWNERS, WANTED, TIMES, FOUND, COUNT };
    static const Expected expected[COUNT] = {
        {&a_uint16, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false},
        {&a_uint16, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    const Py_buffer *views = arrays.views;
    Piece piece = {views[WORDS].buf, {0}};
    bool fit = read_runs(&arrays, EDGES, OWNERS, &piece.owners) && length(&arrays, WORDS) == piece.owners.count &&
               length(&arrays, TIMES) == length(&arrays, WANTED);
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        fit = count_owners(&piece, views[WANTED].buf, views[TIMES].buf, length(&arrays, WANTED), views[FOUND].buf,
                           length(&arrays, FOUND));
        Py_END_ALLOW_THREADS
    }
    return finish(&arrays, fit);
}

/* words, edges and owners of a piece, wanted, source_of; last, many. */
PyObject *call_count_sources(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { WORDS, EDGES, OWNERS, WANTED, SOURCE_OF, LAST, MANY, COUNT };
    static const Expected expected[COUNT] = {
        {&a_uint16, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false}, {&a_uint16, 1, false},
        {&an_int32, 1, false}, {&an_int32, 1, true},  {&an_int32, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    const Py_buffer *views = arrays.views;
    Piece piece = {views[WORDS].buf, {0}};
    bool fit = read_runs(&arrays, EDGES, OWNERS, &piece.owners) && length(&arrays, WORDS) == piece.owners.count &&
               length(&arrays, LAST) == length(&arrays, WANTED) && length(&arrays, MANY) == length(&arrays, WANTED);
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        fit = count_sources(&piece, views[WANTED].buf, length(&arrays, WANTED), views[SOURCE_OF].buf,
                            length(&arrays, SOURCE_OF), views[LAST].buf, views[MANY].buf);
        Py_END_ALLOW_THREADS
    }
    return finish(&arrays, fit);
}

/* of; found. */
PyObject *call_make_shares(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { OF, FOUND, COUNT };
    static const Expected expected[COUNT] = {{&a_uint8, 1, false}, {&an_int32, 1, true}};
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    bool fit = length(&arrays, OF) == length(&arrays, FOUND);
    if (fit) {
        const Py_buffer *views = arrays.views;
        Py_BEGIN_ALLOW_THREADS
        make_shares(views[OF].buf, length(&arrays, OF), views[FOUND].buf);
        Py_END_ALLOW_THREADS
    }
    return finish(&arrays, fit);
}

/* last_message, in_sources, in_excerpts, crowd, kinds, said, said_by_assistant, labels, of_request, of_work; recency, cases,
 * parts and octaves of logarithms, weights; scores. */
PyObject *call_score_rule(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { LAST_MESSAGE, IN_SOURCES, IN_EXCERPTS, CROWD, KINDS, SAID, BY_ASSISTANT, LABELS, OF_REQUEST, OF_WORK,
           RECENCY, CASES, PARTS, OCTAVES, WEIGHTS, SCORES, COUNT };
    static const Expected expected[COUNT] = {
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false},
        {&an_int8, 1, false},  {&a_flag, 1, false},   {&a_flag, 1, false},   {&a_uint8, 1, false},
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false},
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    const Py_buffer *views = arrays.views;
    size_t count = length(&arrays, SCORES);
    bool fit = length(&arrays, PARTS) == LN_PARTS && length(&arrays, OCTAVES) == LN_OCTAVES &&
               length(&arrays, WEIGHTS) == RULE_WEIGHTS && length(&arrays, CASES) % CASES_OF_KIND == 0;
    for (int place = LAST_MESSAGE; place <= OF_WORK; place++) {
        fit = fit && length(&arrays, place) == count;
    }
    if (fit) {
        RuleRows rows = {
            count, views[LAST_MESSAGE].buf, views[IN_SOURCES].buf, views[IN_EXCERPTS].buf, views[CROWD].buf,
            views[KINDS].buf, views[SAID].buf, views[BY_ASSISTANT].buf, views[LABELS].buf, views[OF_REQUEST].buf,
            views[OF_WORK].buf, views[RECENCY].buf, length(&arrays, RECENCY), views[CASES].buf,
            length(&arrays, CASES) / CASES_OF_KIND, views[PARTS].buf, views[OCTAVES].buf, views[WEIGHTS].buf,
        };
        Py_BEGIN_ALLOW_THREADS
        fit = score_rule(&rows, views[SCORES].buf);
        Py_END_ALLOW_THREADS
    }
    return finish(&arrays, fit);
}

/* edges and values of the sources, speakers, messages, tools; last_own, first_result, kinds, shapes, spoken (one number); the counts
 * by group: own and again by kind and shape, used by kind, shape, tool and both; often. */
PyObject *call_count_fortunes(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { EDGES, VALUES, SPEAKERS, MESSAGES, TOOLS, LAST_OWN, FIRST_RESULT, KINDS, SHAPES, SPOKEN,
           OWN_KIND, OWN_SHAPE, AGAIN_KIND, AGAIN_SHAPE, USED_KIND, USED_SHAPE, USED_TOOL, USED_BOTH, OFTEN, COUNT };
    static const Expected expected[COUNT] = {
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int8, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, false},
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int8, 1, false}, {&an_int16, 1, false}, {&an_int32, 1, false},
        {&an_int32, 1, true},  {&an_int32, 1, true},  {&an_int32, 1, true}, {&an_int32, 1, true},
        {&an_int32, 1, true},  {&an_int32, 1, true},  {&an_int32, 1, true}, {&an_int32, 1, true}, {&a_uint8, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    const Py_buffer *views = arrays.views;
    FortuneRows rows = {.speakers = views[SPEAKERS].buf, .messages = views[MESSAGES].buf, .tools = views[TOOLS].buf,
                        .value_count = length(&arrays, LAST_OWN), .last_own = views[LAST_OWN].buf,
                        .first_result = views[FIRST_RESULT].buf, .kinds = views[KINDS].buf, .shapes = views[SHAPES].buf};
    bool fit = read_runs(&arrays, EDGES, VALUES, &rows.sources) && length(&arrays, SPEAKERS) == rows.sources.count &&
               length(&arrays, MESSAGES) == rows.sources.count && length(&arrays, TOOLS) == rows.sources.count &&
               length(&arrays, FIRST_RESULT) == rows.value_count && length(&arrays, KINDS) == rows.value_count &&
               length(&arrays, SHAPES) == rows.value_count && length(&arrays, SPOKEN) == 1 &&
               length(&arrays, AGAIN_KIND) == length(&arrays, OWN_KIND) &&
               length(&arrays, USED_KIND) == length(&arrays, OWN_KIND) &&
               length(&arrays, AGAIN_SHAPE) == length(&arrays, OWN_SHAPE) &&
               length(&arrays, USED_SHAPE) == length(&arrays, OWN_SHAPE) && length(&arrays, USED_BOTH) > 0 &&
               length(&arrays, OFTEN) == rows.value_count;
    if (fit) {
        rows.spoken = *(const int32_t *)views[SPOKEN].buf;
        Fortunes fortunes = {
            views[OWN_KIND].buf, views[OWN_SHAPE].buf, views[AGAIN_KIND].buf, views[AGAIN_SHAPE].buf,
            views[USED_KIND].buf, views[USED_SHAPE].buf, views[USED_TOOL].buf, views[USED_BOTH].buf,
            length(&arrays, OWN_KIND), length(&arrays, OWN_SHAPE), length(&arrays, USED_TOOL), length(&arrays, USED_BOTH),
            views[OFTEN].buf,
        };
        Py_BEGIN_ALLOW_THREADS
        fit = count_fortunes(&rows, &fortunes);
        Py_END_ALLOW_THREADS
    }
    return finish(&arrays, fit);
}

/* logits, divisor and step (two numbers), curve; weights. */
PyObject *call_squash(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { LOGITS, BY, CURVE, WEIGHTS, COUNT };
    static const Expected expected[COUNT] = {
        {&an_int32, 1, false}, {&an_int32, 1, false}, {&a_float32, 1, false}, {&a_float32, 1, true},
    };
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    const Py_buffer *views = arrays.views;
    const int32_t *by = views[BY].buf;
    size_t heights = length(&arrays, CURVE);
    bool fit = length(&arrays, BY) == 2 && by[0] > 0 && by[1] > 0 && heights > 0 && heights <= INT32_MAX &&
               length(&arrays, WEIGHTS) == length(&arrays, LOGITS);
    if (fit) {
        int32_t divisor = by[0], step = by[1];
        Py_BEGIN_ALLOW_THREADS
        squash(views[LOGITS].buf, length(&arrays, LOGITS), divisor, step, views[CURVE].buf, heights, views[WEIGHTS].buf);
        Py_END_ALLOW_THREADS
    }
    return finish(&arrays, fit);
}

/* numbers, most (one number); least. */
PyObject *call_find_least_of_most(PyObject *Py_UNUSED(module), PyObject *args)
{
    enum { NUMBERS, MOST, LEAST, COUNT };
    static const Expected expected[COUNT] = {{&an_int32, 1, false}, {&an_int32, 1, false}, {&an_int32, 1, true}};
    Arrays arrays;
    if (!hold(args, expected, COUNT, &arrays)) {
        return NULL;
    }
    const Py_buffer *views = arrays.views;
    size_t count = length(&arrays, NUMBERS);
    int32_t most = length(&arrays, MOST) == 1 ? *(const int32_t *)views[MOST].buf : 0;
    bool fit = most > 0 && (size_t)most <= count && count <= UINT32_MAX && length(&arrays, LEAST) == 1;
    uint32_t *counts = fit ? PyMem_RawMalloc(HALVES * sizeof(*counts)) : NULL;
    if (fit && counts == NULL) {
        close_arrays(arrays.views, arrays.held);
        return PyErr_NoMemory();
    }
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        *(int32_t *)views[LEAST].buf = find_least_of_most(views[NUMBERS].buf, count, (size_t)most, counts);
        Py_END_ALLOW_THREADS
    }
    PyMem_RawFree(counts);
    return finish(&arrays, fit);
}
