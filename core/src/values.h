/* The values in texts, and a number for each: what `Finder` in `penstock.writing.finder` does, by the rules of `values`,
 * `token_values` and `value_looks`, for ASCII and in one pass over the bytes. What is not ASCII comes back to Python to be read
 * there. Nothing here needs the interpreter's lock, and nothing here may be called by two threads at once for one table.
 */
#ifndef PENSTOCK_VALUES_H
#define PENSTOCK_VALUES_H

#include "rows.h"

/* So many characters, from 0 on, `penstock.writing.compiled` tells us of, a byte for each: not 0 for one that parts tokens.
 * None beyond them does. */
enum { CHARACTERS = 65536 };
enum { LABEL_BITS = 7, LARGEST_LABEL = (1 << LABEL_BITS) - 1 }; /* a value and its label share a number */
enum { KNOWN_SLOTS = 2048, MOST_KNOWN_WORDS = KNOWN_SLOTS / 2, LONGEST_KNOWN_WORD = 64 };
#define LARGEST_BLOCK (1 << 30) /* bytes: so that places in all that is remembered fit into 32 bits */

/* A stretch of bytes that somebody else holds: of a block, or of the text of all tokens. */
typedef struct {
    const uint8_t *at;
    size_t size;
} Bytes;

typedef ROWS(uint8_t) ByteRows;
typedef ROWS(uint16_t) WordRows;
typedef ROWS(uint32_t) NumberRows;
typedef ROWS(int32_t) IdRows;
typedef ROWS(int64_t) OffsetRows;
typedef ROWS(uint64_t) HashRows;

/* A word in small letters, which is known_text[start : start + size]: the label that it gives a value behind it, 0 for none, and
 * whether it names no subject. */
typedef struct {
    uint32_t start;
    uint8_t size;
    uint8_t label;
    bool no_subject;
} KnownWord;

/* Values by their hashes, each with the number it got when it was first met. The texts are not kept. */
typedef struct {
    HashRows hashes;  /* by number */
    uint32_t *slots;  /* numbers + 1, each in the first free slot from that of its hash on; 0 in a free one */
    size_t slot_count;
} ValueNumbers;

typedef struct {
    uint64_t hash;
    uint32_t token; /* 0 where none is */
} TokenSlot;

typedef ROWS(TokenSlot) TokenSlots;

/* Tokens of late, each with the values it holds. Token 0 is the end of a text and holds none. In the middle of a block, those
 * that are new have no rows yet in `first`, `labels` and `words`. */
typedef struct {
    ByteRows text;       /* all tokens, one after the other */
    NumberRows starts;   /* token t is text[starts[t] : starts[t + 1]]; there is one row more than there are tokens */
    TokenSlots slots;    /* by hash; a token is known by all 64 bits of it */
    NumberRows first;    /* the values of token t are held[first[t] : first[t + 1]], with one row more, too */
    IdRows held;         /* numbers of values */
    ByteRows labels;     /* what each token says of a value behind it */
    WordRows words;      /* the bucket of each that is a plain word, 0 for any other */
    ByteRows is_ascii;
} Tokens;

/* What a call of `find` gives: `FoundValues` of `penstock.writing.finder`, and `NewValues` of `value_looks`. */
typedef struct {
    IdRows ids;            /* text t has the values ids[starts[t] : starts[t + 1]], in the order of their numbers */
    OffsetRows starts;
    ByteRows labels;       /* of each row of `ids` */
    WordRows words;        /* the buckets of the plain words of all texts, one text after the other */
    IdRows word_counts;    /* by text: how many of them are its own */
    /* Of the new values, by their place among them. */
    ByteRows kinds;
    WordRows shapes;
    IdRows words_of_value; /* how many words each has, at least 1 */
    WordRows value_words;  /* the buckets of the words of all, one value after the other, */
    IdRows word_owners;    /* and for each of these the place of its value */
    NumberRows beyond;       /* new values that are not ASCII: the place among the new ones, */
    ByteRows beyond_text;    /* and the text, with a line break behind each (no value holds one) */
} Found;

typedef struct {
    uint64_t seed;
    ByteRows known_text;
    ROWS(KnownWord) known_words;
    uint16_t known_slots[KNOWN_SLOTS];  /* places in known_words + 1, by hash */
    Tokens tokens;
    ValueNumbers values;
    /* Between `table_scan` and `table_finish`: the tokens and the phrases of the block in their order, 0 at the end of each
     * text. */
    NumberRows codes;
    NumberRows phrases;
    size_t read_until;   /* tokens from here on are new: nothing is known of them but their texts */
    size_t values_before; /* so many values had numbers before this block */
} ValueTable;

/* What Python says of a token that is not ASCII. The values are the caller's. */
typedef struct {
    const Bytes *values;
    size_t value_count;
    uint8_t label;
    uint16_t word;
} Described;

/* Called once before anything else; again for each interpreter that loads the module, which changes nothing. */
void values_prepare(void);

/* Takes in a word of up to `LONGEST_KNOWN_WORD` bytes while there are fewer than `MOST_KNOWN_WORDS`; false where memory is out. */
bool table_know_word(ValueTable *table, Bytes word, uint8_t label, bool no_subject);
void table_free(ValueTable *table);

/* Finding values takes two steps, with Python between them: it reads the new tokens that are not ASCII. Whoever calls
 * `table_scan` calls `table_finish` next, or `table_give_up`, and nothing else of the table in between.
 *
 * `table_scan` cuts a block of up to `LARGEST_BLOCK` bytes into tokens and phrases, and remembers the new ones.
 * `separators` may be NULL where all is ASCII. `table_finish` reads what is new, of which `described` has those beyond
 * ASCII in their order, and gathers the values of each text. Both return false where memory is out. */
bool table_scan(ValueTable *table, Bytes block, const uint8_t *separators);
bool table_finish(ValueTable *table, const Described *described, Found *found);

/* Takes back what was begun: no value has a number that it did not have before. */
void table_give_up(ValueTable *table);

/* The numbers of values met before that stand in a block of any size, sorted, each once; tokens beyond ASCII go to `beyond`. */
bool table_find_known(ValueTable *table, Bytes block, const uint8_t *separators, IdRows *known, ByteRows *beyond);

/* The number of a value, or -1. */
int32_t table_look_up(const ValueTable *table, Bytes value);

void found_free(Found *found);

#endif
