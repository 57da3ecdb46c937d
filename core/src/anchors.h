/* Where the anchors of rules stand in a text: `penstock.redaction.anchors`, of bytes in UTF-8. */
#ifndef PENSTOCK_ANCHORS_H
#define PENSTOCK_ANCHORS_H

#include "rows.h"

enum { SHORTEST_ANCHOR = 2, SIEVE_BITS = 17, SIEVE_WORDS = 1 << (SIEVE_BITS - 6) };

typedef struct {
    uint32_t start;      /* in the text of all anchors */
    uint32_t size;       /* in bytes, */
    uint32_t characters; /* and in characters */
    uint32_t which;      /* its place among those that were given */
} Anchor;

/* The anchors that begin with the same bytes: the first four, or all of one that has fewer. */
typedef struct {
    uint32_t key;
    uint32_t key_size; /* 0 where none is */
    uint32_t first, end; /* among the anchors in their order */
} AnchorGroup;

typedef struct {
    ROWS(uint8_t) text;
    ROWS(Anchor) anchors; /* ordered by their keys */
    AnchorGroup *groups;  /* by the hash of their key */
    size_t group_count;   /* a power of two */
    /* Bits by a hash: of the first three bytes of each, of those of short ones alone, and of the first four bytes of the others. */
    uint64_t sieve[SIEVE_WORDS];
    uint64_t short_sieve[SIEVE_WORDS];
    uint64_t long_sieve[SIEVE_WORDS];
} Anchors;

typedef struct {
    uint32_t which;
    size_t start, end; /* in characters */
} AnchorHit;

typedef ROWS(AnchorHit) AnchorHits;

/* Adds an anchor of at least two bytes. Returns false where memory is out. */
bool anchors_add(Anchors *anchors, const uint8_t *at, size_t size);

/* Makes the anchors ready to be looked for, once all were added. */
bool anchors_prepare(Anchors *anchors);

/* Finds every anchor, also inside another, in the order of their ends; of those that end together the longest comes first. */
bool anchors_find(const Anchors *anchors, const uint8_t *at, size_t size, bool is_ascii, AnchorHits *hits);

void anchors_free(Anchors *anchors);

#endif
