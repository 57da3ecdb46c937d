#include "cutting.h"

/* Characters, as in `penstock.writing.excerpts`. */
enum { WISHED = 85, WISHED_ITEMS = 60, SLACK = 40, LEAST = 20, LONGEST_SENTENCE = 260, LONGEST_SPOKEN = 400 };
enum { LONGEST_WORD = 200, LONGEST_NUMBERING = 8 };

/* A text of any width of characters. */
typedef struct {
    const void *data;
    int kind;
    Py_ssize_t size;
} Text;

static inline Py_UCS4 at(const Text *text, Py_ssize_t place)
{
    return PyUnicode_READ(text->kind, text->data, place);
}

static inline bool is_space(Py_UCS4 character) { return Py_UNICODE_ISSPACE(character); }
static inline bool is_alnum(Py_UCS4 character) { return Py_UNICODE_ISALNUM(character); }
static inline bool is_word(Py_UCS4 character) { return character == '_' || Py_UNICODE_ISALNUM(character); }

static bool has_word(const Text *text, Py_ssize_t start, Py_ssize_t end)
{
    for (Py_ssize_t place = start; place < end; place++) {
        if (is_word(at(text, place))) {
            return true;
        }
    }
    return false;
}

static bool has_letter(const Text *text, Py_ssize_t start, Py_ssize_t end)
{
    for (Py_ssize_t place = start; place < end; place++) {
        Py_UCS4 character = at(text, place);
        if (is_alnum(character) && !Py_UNICODE_ISDECIMAL(character)) {
            return true;
        }
    }
    return false;
}

static Py_ssize_t skip_space(const Text *text, Py_ssize_t place, Py_ssize_t end)
{
    while (place < end && is_space(at(text, place))) {
        place++;
    }
    return place;
}

static void strip(const Text *text, Py_ssize_t *start, Py_ssize_t *end)
{
    *start = skip_space(text, *start, *end);
    while (*end > *start && is_space(at(text, *end - 1))) {
        (*end)--;
    }
}

static bool is_closing(Py_UCS4 character)
{
    return character == '"' || character == '\'' || character == 0x201d || character == 0x2019 || character == ')' ||
           character == ']' || character == '*' || character == '`';
}

static bool is_closing_wide(Py_UCS4 character)
{
    return character == 0x300d || character == 0x300f || character == 0x201d || character == 0x2019;
}

/* Returns where a sentence ends that ends with this character, its closing marks and the space behind it included; -1 where
 * none does. */
static Py_ssize_t end_of_sentence(const Text *text, Py_ssize_t place, Py_ssize_t end)
{
    Py_UCS4 character = at(text, place++);
    if (character == '.' || character == '!' || character == '?') {
        while (place < end && is_closing(at(text, place))) {
            place++;
        }
    } else if (character == 0x3002 || character == 0xff01 || character == 0xff1f) {
        while (place < end && is_closing_wide(at(text, place))) {
            place++;
        }
        return place;
    } else if (character != ';') {
        return -1;
    }
    Py_ssize_t behind = skip_space(text, place, end);
    return behind > place ? behind : -1;
}

static Py_ssize_t end_of_item(const Text *text, Py_ssize_t place, Py_ssize_t end)
{
    if (at(text, place) != ',') {
        return -1;
    }
    Py_ssize_t behind = skip_space(text, place + 1, end);
    return behind > place + 1 ? behind : -1;
}

static Py_ssize_t end_of_clause(const Text *text, Py_ssize_t place, Py_ssize_t end)
{
    Py_UCS4 character = at(text, place);
    if (character == ',' || character == ':') {
        Py_ssize_t behind = skip_space(text, place + 1, end);
        if (behind > place + 1) {
            return behind;
        }
    }
    if (character == '\\') {
        Py_ssize_t behind = place;
        while (behind + 1 < end && at(text, behind) == '\\' && at(text, behind + 1) == 'n') {
            behind += 2;
        }
        return behind > place ? behind : -1;
    }
    if (character == 0xff1b || character == 0xff0c || character == 0x3001) {
        return place + 1;
    }
    if ((character == ',' || character == ';' || character == '}' || character == ']') && place + 1 < end) {
        Py_UCS4 next = at(text, place + 1);
        if (next == '[' || next == '"' || next == '{') {
            return place + 1;
        }
    }
    return -1;
}

/* ---- Long lines: places are counted from the start of the text, as everywhere here ------------------------------------ */

static bool push_piece(Cut *cut, const Text *text, Py_ssize_t start, Py_ssize_t end)
{
    strip(text, &start, &end);
    Piece piece = {.start = start, .end = end, .first_line = 0, .lines = 1};
    return !has_word(text, start, end) || rows_push(&cut->pieces, piece);
}

/* Returns the best cut in a run without a space: behind a mark between its parts, so that no name loses its end. */
static Py_ssize_t last_joint(const Text *text, Py_ssize_t start, Py_ssize_t limit)
{
    for (Py_ssize_t place = limit; place > start + SLACK; place--) {
        Py_UCS4 before = at(text, place - 1);
        if (!is_alnum(before) && before != '_' && before != '-' && before != '.') {
            return place;
        }
    }
    return limit;
}

/* Returns the best end for the piece of a long sentence that begins at `start`. */
static Py_ssize_t last_break(const Text *text, Py_ssize_t start, Py_ssize_t end)
{
    Py_ssize_t limit = start + WISHED + SLACK, best = -1;
    for (Py_ssize_t place = start + SLACK; place < limit;) {
        Py_ssize_t behind = end_of_clause(text, place, limit);
        best = behind < 0 ? best : behind;
        place = behind < 0 ? place + 1 : behind;
    }
    if (best >= 0) {
        return best;
    }
    Py_ssize_t space = limit - 1;
    while (space >= start + SLACK && at(text, space) != ' ') {
        space--;
    }
    if (space >= start + SLACK) {
        return space;
    }
    Py_ssize_t until = end < limit + LONGEST_WORD ? end : limit + LONGEST_WORD;
    for (space = limit; space < until; space++) {
        if (at(text, space) == ' ') {
            return space;
        }
    }
    return end <= limit + LONGEST_WORD ? end : last_joint(text, start, limit);
}

/* Adds the line from `start` up to `end`; a sentence that is too long to quote comes in pieces. */
static bool cut_within(Cut *cut, const Text *text, Py_ssize_t start, Py_ssize_t end, Py_ssize_t longest)
{
    while (end - start > longest) {
        Py_ssize_t behind = last_break(text, start, end);
        if (end - behind < LEAST) {
            break;
        }
        if (!push_piece(cut, text, start, behind)) {
            return false;
        }
        start = behind;
    }
    return push_piece(cut, text, start, end);
}

/* Adds a long line in pieces that stand in it letter for letter: sentences or items, short ones joined. */
static bool cut_long_line(Cut *cut, const Text *text, Py_ssize_t line, Py_ssize_t line_end, bool items, Py_ssize_t longest)
{
    Py_ssize_t wished = items ? WISHED_ITEMS : WISHED, start = line;
    Py_ssize_t held = line; /* where the last sentence of the piece ends, as far as it is known */
    for (Py_ssize_t place = line; place < line_end;) {
        Py_ssize_t end = items ? end_of_item(text, place, line_end) : end_of_sentence(text, place, line_end);
        if (end < 0) {
            place++;
            continue;
        }
        place = end;
        if (!items && end - start < LONGEST_NUMBERING && !has_letter(text, start, end)) {
            continue; /* the number of a point, not a sentence */
        }
        if (held > start && end - start > wished) {
            if (!cut_within(cut, text, start, held, longest)) {
                return false;
            }
            start = held;
        }
        held = end;
    }
    if (held > start && line_end - start > wished + SLACK) {
        if (!cut_within(cut, text, start, held, longest)) {
            return false;
        }
        start = held;
    }
    return cut_within(cut, text, start, line_end, longest);
}

/* ---- Lines ---------------------------------------------------------------------------------------------------------- */

/* Whether a line is the printed number of an empty line: "12:". */
static bool is_bare_number(const Text *text, Py_ssize_t start, Py_ssize_t end)
{
    if (at(text, end - 1) != ':' || end - start < 2) {
        return false;
    }
    for (Py_ssize_t place = start; place < end - 1; place++) {
        if (!Py_UNICODE_ISDIGIT(at(text, place))) {
            return false;
        }
    }
    return true;
}

/* Short lines that are held until they are long enough together. */
typedef struct {
    size_t first_line;
    size_t lines;
    Py_ssize_t size; /* characters, with a line break between two */
} HeldLines;

static bool push_held(Cut *cut, HeldLines *held)
{
    if (held->lines == 0) {
        return true;
    }
    const Line *first = &cut->lines.at[held->first_line];
    Piece piece = {first->start, cut->lines.at[held->first_line + held->lines - 1].end, held->first_line, held->lines};
    held->lines = 0;
    held->size = 0;
    return rows_push(&cut->pieces, piece);
}

static bool hold_line(Cut *cut, HeldLines *held, Py_ssize_t start, Py_ssize_t end)
{
    Line line = {start, end};
    if (held->lines == 0) {
        held->first_line = cut->lines.count;
    }
    held->size += end - start + (held->lines ? 1 : 0);
    held->lines++;
    return rows_push(&cut->lines, line) && (held->size < LEAST || push_held(cut, held));
}

bool cut_text(PyObject *object, bool items, bool spoken, Cut *cut)
{
    Text text = {PyUnicode_DATA(object), (int)PyUnicode_KIND(object), PyUnicode_GET_LENGTH(object)};
    Py_ssize_t longest = spoken ? LONGEST_SPOKEN : LONGEST_SENTENCE;
    HeldLines held = {0, 0, 0};
    for (Py_ssize_t next = 0; next <= text.size;) {
        Py_ssize_t start = next, end = next;
        while (end < text.size && at(&text, end) != '\n') {
            end++;
        }
        next = end + 1;
        strip(&text, &start, &end);
        if (!has_word(&text, start, end) || is_bare_number(&text, start, end)) {
            continue;
        }
        if (held.lines && held.size + (end - start) > WISHED && !push_held(cut, &held)) {
            return false;
        }
        if (end - start > WISHED + SLACK) {
            if (!push_held(cut, &held) || !cut_long_line(cut, &text, start, end, items, longest)) {
                return false;
            }
        } else if (!hold_line(cut, &held, start, end)) {
            return false;
        }
    }
    return push_held(cut, &held);
}

void cut_free(Cut *cut)
{
    rows_free(&cut->pieces);
    rows_free(&cut->lines);
}
