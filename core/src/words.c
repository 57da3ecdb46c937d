#include "words.h"

#include "characters.h"

#include <string.h>

enum { SHORTEST_WORD = 4 };

typedef struct {
    const uint8_t *at;
    size_t size;
} Word;

typedef struct {
    Word words[MOST_PLAIN_WORDS];
    int count;
} WordSet;

static bool is_same_word(Word one, Word other)
{
    if (one.size != other.size) {
        return false;
    }
    for (size_t place = 0; place < one.size; place++) {
        if (to_lower(one.at[place]) != to_lower(other.at[place])) {
            return false;
        }
    }
    return true;
}

static void add_word(WordSet *set, Word word)
{
    for (int place = 0; place < set->count; place++) {
        if (is_same_word(set->words[place], word)) {
            return;
        }
    }
    if (set->count < MOST_PLAIN_WORDS) {
        set->words[set->count++] = word;
    }
}

/* Whether a run without blanks reads like a name: then none of its words is plain. */
static bool is_name_like(const uint8_t *start, const uint8_t *end)
{
    for (const uint8_t *at = start; at < end; at++) {
        if (is_digit(*at) || is_one_of(*at, "_/\\.@#") || (at + 1 < end && is_lower(*at) && is_upper(at[1]))) {
            return true;
        }
    }
    return false;
}

/* Adds the runs of letters in a run without blanks that are long enough. */
static void add_words(WordSet *set, const uint8_t *start, const uint8_t *end)
{
    if (is_name_like(start, end)) {
        return;
    }
    for (const uint8_t *at = start; at < end; at++) {
        const uint8_t *first = at;
        while (at < end && is_letter(*at)) {
            at++;
        }
        if (at - first >= SHORTEST_WORD) {
            add_word(set, (Word){first, (size_t)(at - first)});
        }
    }
}

int count_plain_words(const uint8_t *text, size_t size, int most)
{
    WordSet set = {.count = 0};
    const uint8_t *at = text, *end = text + size;
    while (at < end && set.count < most) {
        while (at < end && is_blank(*at)) {
            at++;
        }
        const uint8_t *start = at;
        while (at < end && !is_blank(*at)) {
            at++;
        }
        if (at - start >= SHORTEST_WORD) {
            add_words(&set, start, at);
        }
    }
    return set.count < most ? set.count : most;
}

enum { PLACES_AT_ONCE = 64 };

bool holds_word(const uint8_t *text, size_t size, const uint8_t *word, size_t count)
{
    if (count == 0 || count > size) {
        return count == 0;
    }
    const uint8_t first = word[0], last = word[count - 1], *ends = text + count - 1;
    size_t places = size - count + 1;
    for (size_t start = 0; start < places; start += PLACES_AT_ONCE) {
        size_t some = places - start < PLACES_AT_ONCE ? places - start : PLACES_AT_ONCE;
        uint8_t may_stand = some < PLACES_AT_ONCE; /* somewhere in these places: compilers do this for many bytes at once */
        for (size_t place = start; some == PLACES_AT_ONCE && place < start + PLACES_AT_ONCE; place++) {
            may_stand |= (text[place] == first) & (ends[place] == last);
        }
        for (size_t place = start; may_stand && place < start + some; place++) {
            if (text[place] == first && ends[place] == last && memcmp(text + place, word, count) == 0) {
                return true;
            }
        }
    }
    return false;
}
