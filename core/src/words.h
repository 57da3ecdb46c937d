/* Plain words of a text: `penstock.writing.values.plain_words`, of ASCII. */
#ifndef PENSTOCK_WORDS_H
#define PENSTOCK_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_PLAIN_WORDS = 8 };

/* How many different plain words stand in the text; `most`, up to `MOST_PLAIN_WORDS`, or more is `most`. */
int count_plain_words(const uint8_t *text, size_t size, int most);

/* Whether these bytes stand in the text. */
bool holds_word(const uint8_t *text, size_t size, const uint8_t *word, size_t count);

#endif
