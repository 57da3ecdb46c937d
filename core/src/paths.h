/* What a reader finds in the paths of a text: `penstock.writing.values.parts_of_paths`, of ASCII. */
#ifndef PENSTOCK_PATHS_H
#define PENSTOCK_PATHS_H

#include "rows.h"

typedef struct {
    const uint8_t *at;
    size_t size;
} PathPart;

typedef ROWS(PathPart) PathParts;

/* Adds the folders, the ends and the stems of all paths of the text. Returns false where memory is out. */
bool find_path_parts(const uint8_t *text, size_t size, PathParts *parts);

#endif
