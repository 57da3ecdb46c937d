#include "paths.h"

#include "characters.h"

enum { LONGEST_PATH = 200, SHORTEST_STEM = 4 };

static bool add_part(PathParts *parts, const uint8_t *start, const uint8_t *end)
{
    PathPart part = {start, (size_t)(end - start)};
    return rows_push(parts, part);
}

/* One token of characters that can stand in a value: `values._parts_of_path`. */
static bool read_path(PathParts *parts, const uint8_t *start, const uint8_t *end)
{
    if (memchr(start + 1, '/', (size_t)(end - start - 1)) == NULL || end - start > LONGEST_PATH) {
        return true;
    }
    while (end > start && is_one_of(end[-1], ".-+/\\%~$")) {
        end--;
    }
    while (start < end && is_one_of(*start, ".-+%~$")) {
        start++;
    }
    const uint8_t *last = start;
    for (const uint8_t *at = start; at < end; at++) {
        if (*at != '/') {
            continue;
        }
        last = at + 1;
        if (at > start && !(add_part(parts, start, at) && add_part(parts, at + 1, end))) {
            return false;
        }
    }
    const uint8_t *dot = end;
    while (dot > last && dot[-1] != '.') {
        dot--;
    }
    return dot - 1 - last < SHORTEST_STEM || add_part(parts, last, dot - 1);
}

bool find_path_parts(const uint8_t *text, size_t size, PathParts *parts)
{
    const uint8_t *end = text + size;
    for (const uint8_t *slash = memchr(text, '/', size), *behind = text; slash != NULL;
         slash = memchr(behind, '/', (size_t)(end - behind))) {
        const uint8_t *start = slash;
        while (start > behind && is_inside_token(start[-1])) {
            start--;
        }
        behind = slash + 1;
        while (behind < end && is_inside_token(*behind)) {
            behind++;
        }
        if (!read_path(parts, start, behind)) {
            return false;
        }
    }
    return true;
}
