/* Cutting a text into excerpts: `penstock.writing.excerpts.excerpts`, for any text. */
#ifndef PENSTOCK_CUTTING_H
#define PENSTOCK_CUTTING_H

#include "rows.h"

/* An excerpt: text[start:end], or, where `lines` are more than one, these lines of the text joined with line breaks. */
typedef struct {
    Py_ssize_t start;
    Py_ssize_t end;
    size_t first_line; /* among the lines of the cut */
    size_t lines;
} Piece;

typedef struct {
    Py_ssize_t start;
    Py_ssize_t end;
} Line;

typedef struct {
    ROWS(Piece) pieces;
    ROWS(Line) lines; /* of pieces that are joined */
} Cut;

/* Needs the interpreter's lock only so that the text stays. Returns false where memory is out. */
bool cut_text(PyObject *text, bool items, bool spoken, Cut *cut);
void cut_free(Cut *cut);

#endif
