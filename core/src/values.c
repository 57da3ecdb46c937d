#include "values.h"

#include <stdlib.h>

#include "characters.h"

enum { LONGEST_VALUE = 200, SHORTEST_VALUE = 3, SHORTEST_PART = 4, SHORTEST_HYPHENATED = 5, SHORTEST_WORD = 4, STEM = 6 };
enum { REMEMBERED = 100000, LONGEST_SHAPE = 63, LONGEST_HASHED = 256, SHORTEST_HEX = 7 };
enum { LABEL_IDENTIFIER = 1 };

/* Reads one character beyond ASCII; returns its size in bytes. The block comes from Python's own encoder: of other bytes,
 * none behind the end is read, and what character they are does not matter. */
static inline size_t read_character(const uint8_t *at, const uint8_t *end, uint32_t *character)
{
    if (*at < 0xe0 && end - at >= 2) {
        *character = (uint32_t)(at[0] & 0x1f) << 6 | (at[1] & 0x3f);
        return 2;
    }
    if (*at < 0xf0 && end - at >= 3) {
        *character = (uint32_t)(at[0] & 0x0f) << 12 | (uint32_t)(at[1] & 0x3f) << 6 | (at[2] & 0x3f);
        return 3;
    }
    if (end - at >= 4) {
        *character = (uint32_t)(at[0] & 0x07) << 18 | (uint32_t)(at[1] & 0x3f) << 12 | (uint32_t)(at[2] & 0x3f) << 6 |
                     (at[3] & 0x3f);
        return 4;
    }
    *character = 0;
    return (size_t)(end - at);
}

static inline bool is_separator(uint32_t character, const uint8_t *separators)
{
    return separators != NULL && character < CHARACTERS && separators[character];
}

/* ---- Hashes --------------------------------------------------------------------------------------------------- */

static inline uint64_t multiply_and_fold(uint64_t one, uint64_t other)
{
#if defined(__SIZEOF_INT128__)
    unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t low = (one & 0xffffffff) * (other & 0xffffffff), high = (one >> 32) * (other >> 32);
    uint64_t left = (one >> 32) * (other & 0xffffffff), right = (one & 0xffffffff) * (other >> 32);
    uint64_t middle = (low >> 32) + (left & 0xffffffff) + (right & 0xffffffff);
    high += (left >> 32) + (right >> 32) + (middle >> 32);
    return ((middle << 32) | (low & 0xffffffff)) ^ high;
#endif
}

/* A seeded hash of 64 bits. Nothing that anybody sees depends on it: numbers are given in the order of meeting. */
static uint64_t hash_bytes(Bytes bytes, uint64_t seed)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u, other = 0xd1b54a32d192ed03u;
    uint64_t hash = seed ^ multiply_and_fold(bytes.size + odd, other), piece = 0;
    const uint8_t *at = bytes.at, *end = bytes.at + bytes.size;
    for (; end - at > 8; at += 8) {
        memcpy(&piece, at, 8);
        hash = multiply_and_fold(hash ^ piece, odd ^ seed);
    }
    piece = 0;
    memcpy(&piece, at, (size_t)(end - at));
    return multiply_and_fold(hash ^ piece, other) ^ multiply_and_fold(hash + odd, seed | 1);
}

/* The bucket of a word: the same sum as `value_looks.hash_words` makes. */
static uint16_t bucket_of(const uint8_t *at, size_t size)
{
    uint64_t factor = 1, sum = 0;
    for (size_t place = 0; place < size && place < LONGEST_HASHED; place++) {
        factor *= 0x9e3779b97f4a7c15u;
        sum += ((uint64_t)to_lower(at[place]) + 1) * factor;
    }
    return (uint16_t)(sum >> 48);
}

/* Where the search for a hash begins in a table of so many slots: its upper half, of 2 ** 32, as a share of them. So a table may
 * be of any size, and takes no division. */
static inline size_t slot_of(uint64_t hash, size_t slots)
{
    return (size_t)(((hash >> 32) * (uint64_t)slots) >> 32);
}

static inline bool same_bytes(Bytes one, const uint8_t *at, size_t size)
{
    return one.size == size && memcmp(one.at, at, size) == 0;
}

/* ---- Words that say something of the value behind them, and words without a subject ----------------------------- */

static const KnownWord *find_known_word(const ValueTable *table, Bytes lowered)
{
    size_t slot = hash_bytes(lowered, 0) % KNOWN_SLOTS;
    for (; table->known_slots[slot]; slot = (slot + 1) % KNOWN_SLOTS) {
        const KnownWord *word = &table->known_words.at[table->known_slots[slot] - 1];
        if (same_bytes(lowered, table->known_text.at + word->start, word->size)) {
            return word;
        }
    }
    return NULL;
}

bool table_know_word(ValueTable *table, Bytes word, uint8_t label, bool no_subject)
{
    KnownWord *known = (KnownWord *)find_known_word(table, word);
    if (known != NULL) {
        known->label |= label;
        known->no_subject |= no_subject;
        return true;
    }
    KnownWord added = {(uint32_t)table->known_text.count, (uint8_t)word.size, label, no_subject};
    if (!rows_reserve(&table->known_text, word.size + 1) || !rows_push(&table->known_words, added)) {
        return false;
    }
    memcpy(table->known_text.at + table->known_text.count, word.at, word.size);
    table->known_text.count += word.size;
    size_t slot = hash_bytes(word, 0) % KNOWN_SLOTS;
    while (table->known_slots[slot]) {
        slot = (slot + 1) % KNOWN_SLOTS;
    }
    table->known_slots[slot] = (uint16_t)table->known_words.count;
    return true;
}

/* The label that a token of ASCII, or the last word in it, says of a value behind it. */
static uint8_t label_of(const ValueTable *table, Bytes token)
{
    const uint8_t *end = token.at + token.size, *at = end;
    while (at > token.at && at[-1] != '_') {
        at--;
    }
    size_t size = (size_t)(end - at);
    uint8_t lowered[LONGEST_KNOWN_WORD];
    if (size <= sizeof(lowered)) {
        for (size_t place = 0; place < size; place++) {
            lowered[place] = to_lower(at[place]);
        }
        const KnownWord *known = find_known_word(table, (Bytes){lowered, size});
        if (known != NULL && known->label) {
            return known->label;
        }
    }
    return size >= 2 && end[-2] == 'I' && (end[-1] | 32) == 'd' ? LABEL_IDENTIFIER : 0;
}

/* The bucket of a token of ASCII that is a plain word with a subject; 0 for any other. */
static uint16_t plain_word_of(const ValueTable *table, Bytes token)
{
    uint8_t lowered[LONGEST_KNOWN_WORD];
    if (token.size < SHORTEST_WORD) {
        return 0;
    }
    for (size_t place = 0; place < token.size; place++) {
        if (!is_letter(token.at[place])) {
            return 0;
        }
        if (place < sizeof(lowered)) {
            lowered[place] = to_lower(token.at[place]);
        }
    }
    if (token.size <= sizeof(lowered)) {
        const KnownWord *known = find_known_word(table, (Bytes){lowered, token.size});
        if (known != NULL && known->no_subject) {
            return 0;
        }
    }
    return bucket_of(lowered, token.size < STEM ? token.size : STEM);
}

/* ---- Numbers of values ------------------------------------------------------------------------------------------ */

/* Returns the number of a value, or -1 for one that was not met. */
static int32_t find_number(const ValueNumbers *values, uint64_t hash)
{
    if (values->slot_count == 0) {
        return -1;
    }
    size_t slot = slot_of(hash, values->slot_count);
    while (values->slots[slot]) { /* a fifth of them is free */
        if (values->hashes.at[values->slots[slot] - 1] == hash) {
            return (int32_t)(values->slots[slot] - 1);
        }
        slot = slot + 1 == values->slot_count ? 0 : slot + 1;
    }
    return -1;
}

static void put_number(ValueNumbers *values, uint64_t hash, uint32_t number)
{
    size_t slot = slot_of(hash, values->slot_count);
    while (values->slots[slot]) {
        slot = slot + 1 == values->slot_count ? 0 : slot + 1;
    }
    values->slots[slot] = number + 1;
}

/* Returns the number of a value that was not met before, or -1 where memory is out. */
static int32_t add_number(ValueNumbers *values, uint64_t hash)
{
    size_t number = values->hashes.count;
    if (number >= INT32_MAX || !rows_push(&values->hashes, hash)) {
        return -1;
    }
    if ((number + 1) * 5 > values->slot_count * 4) { /* four fifths full */
        size_t wanted = values->slot_count * 3 / 2 + 1024;
        uint32_t *slots = PyMem_RawCalloc(wanted, sizeof(*slots));
        if (slots == NULL) {
            values->hashes.count--;
            return -1;
        }
        PyMem_RawFree(values->slots);
        values->slots = slots;
        values->slot_count = wanted;
        for (size_t each = 0; each < number; each++) {
            put_number(values, values->hashes.at[each], (uint32_t)each);
        }
    }
    put_number(values, hash, (uint32_t)number);
    return (int32_t)number;
}

/* Forgets all numbers from this one on. Needs no memory. */
static void take_back_numbers(ValueNumbers *values, size_t count)
{
    if (values->hashes.count == count) {
        return;
    }
    values->hashes.count = count;
    memset(values->slots, 0, values->slot_count * sizeof(*values->slots));
    for (size_t each = 0; each < count; each++) {
        put_number(values, values->hashes.at[each], (uint32_t)each);
    }
}

int32_t table_look_up(const ValueTable *table, Bytes value)
{
    return find_number(&table->values, hash_bytes(value, table->seed));
}

/* ---- The values in one token ------------------------------------------------------------------------------------ */

/* A token never holds more: the parts of a dotted name are at least four characters long. */
enum { MOST_VALUES = LONGEST_VALUE };

typedef struct {
    Bytes at[MOST_VALUES];
    size_t count;
} TokenValues;

static inline void add_value(TokenValues *values, const uint8_t *start, const uint8_t *end)
{
    if (values->count < MOST_VALUES) {
        values->at[values->count++] = (Bytes){start, (size_t)(end - start)};
    }
}

/* Whether a reader would take the word for a name or a number rather than for plain language: `values._is_name`. */
static bool is_name(const uint8_t *start, const uint8_t *end)
{
    bool all_capitals = true, hyphen = false;
    for (const uint8_t *at = start; at < end; at++) {
        uint8_t byte = *at;
        if (is_digit(byte) || byte == '@' || byte == '#') {
            return true;
        }
        hyphen |= byte == '-';
        if (!is_upper(byte)) {
            all_capitals = false;
        }
        if (at + 1 < end && is_upper(at[1]) && is_lower(byte)) {
            return true;
        }
        if (at + 2 < end && is_upper(byte) && is_upper(at[1]) && is_lower(at[2])) {
            return true;
        }
        if ((byte == '_' || byte == '.') && at > start && at[-1] != byte) { /* a run of them with something on both sides */
            const uint8_t *behind = at;
            while (behind < end && *behind == byte) {
                behind++;
            }
            if (behind < end) {
                return true;
            }
        }
    }
    size_t size = (size_t)(end - start);
    return (all_capitals && size >= 3) || (hyphen && size >= SHORTEST_HYPHENATED);
}

static void read_path(TokenValues *values, const uint8_t *start, const uint8_t *end)
{
    const uint8_t *last = start;
    bool spoken = false;
    for (const uint8_t *at = start; at < end; at++) {
        spoken |= is_alnum(*at);
        if (*at == '/' || *at == '\\') {
            last = at + 1;
        }
    }
    if (!spoken) {
        return;
    }
    add_value(values, start, end);
    if (last > start && end - last >= SHORTEST_PART && is_name(last, end)) {
        add_value(values, last, end);
    }
}

/* A token with marks inside or around it: `values._in_marked`. */
static void read_marked(TokenValues *values, const uint8_t *start, const uint8_t *end)
{
    while (end > start && is_one_of(end[-1], ".-+/\\%~$")) {
        end--;
    }
    while (start < end && (*start == '+' || *start == '%')) {
        start++;
    }
    const uint8_t *bare = start;
    while (bare < end && *bare == '-') {
        bare++;
    }
    if (bare - start >= 2) {
        if (end - bare >= SHORTEST_VALUE) {
            add_value(values, bare - 2, end);
        }
        return;
    }
    start = bare;
    if (end - start < SHORTEST_VALUE) {
        return;
    }
    bool slash = false, dot = false;
    for (const uint8_t *at = start; at < end; at++) {
        slash |= *at == '/' || *at == '\\';
        dot |= *at == '.';
    }
    if (slash) {
        read_path(values, start, end);
    } else if (!dot) {
        if (is_name(start, end)) {
            add_value(values, start, end);
        }
    } else if (*start != '.' || is_name(start, end)) {
        add_value(values, start, end);
        for (const uint8_t *part = start, *at = start; at <= end; at++) {
            if (at == end || *at == '.') {
                if (at - part >= SHORTEST_PART && is_name(part, at)) {
                    add_value(values, part, at);
                }
                part = at + 1;
            }
        }
    }
}

/* The words between quotes, where they are more than one plain word: `values.values_in_phrase`. */
static void read_phrase(TokenValues *values, const uint8_t *start, const uint8_t *end)
{
    start++;
    end--;
    while (start < end && is_blank(*start)) {
        start++;
    }
    while (end > start && is_blank(end[-1])) {
        end--;
    }
    bool plain = true, spoken = false;
    for (const uint8_t *at = start; at < end; at++) {
        plain &= is_alnum(*at) || *at == '_';
        spoken |= is_alnum(*at);
    }
    if (end - start >= SHORTEST_PART && !(plain && spoken)) {
        add_value(values, start, end);
    }
}

static inline bool is_quote(uint8_t byte) { return byte == '"' || byte == '\'' || byte == '`'; }

/* What `values_of_each` says of one token or phrase of ASCII. */
static void read_token(TokenValues *values, Bytes token)
{
    values->count = 0;
    const uint8_t *start = token.at, *end = token.at + token.size;
    if (is_quote(*start)) {
        if (token.size >= 2) {
            read_phrase(values, start, end);
        }
        return;
    }
    bool alnum = true, identifier = !is_digit(*start), capital_inside = false, letters = true;
    for (const uint8_t *at = start; at < end; at++) {
        alnum &= is_alnum(*at);
        identifier &= is_alnum(*at) || *at == '_';
        letters &= is_letter(*at);
        capital_inside |= at > start && is_upper(*at);
    }
    if (alnum || identifier) {
        bool word = letters && !capital_inside; /* in small letters, or a title */
        if (token.size >= SHORTEST_VALUE && token.size <= LONGEST_VALUE && !word) {
            add_value(values, start, end);
        }
    } else if (token.size <= LONGEST_VALUE) {
        read_marked(values, start, end);
    }
}

/* ---- What a new value looks like -------------------------------------------------------------------------------- */

enum { SPACE = 1, SLASH = 2, DIGIT = 4, LETTER = 8, UNDERSCORE = 16, NOT_HEX = 32, NOT_NUMBER = 64, DOT = 128 };
enum { KIND_NAME, KIND_PATH, KIND_FLAG, KIND_NUMBER, KIND_ID, KIND_HEX, KIND_SNAKE, KIND_PHRASE };

static uint8_t classes_of(uint8_t byte)
{
    return (uint8_t)((byte == ' ' ? SPACE : 0) | (byte == '/' || byte == '\\' ? SLASH : 0) | (is_digit(byte) ? DIGIT : 0) |
                     (byte >= 128 || is_letter(byte) ? LETTER : 0) | (byte == '_' ? UNDERSCORE : 0) |
                     (is_digit(byte) || (byte >= 'a' && byte <= 'f') ? 0 : NOT_HEX) |
                     (is_digit(byte) || byte == '.' || byte == ',' || byte == '%' ? 0 : NOT_NUMBER) | (byte == '.' ? DOT : 0));
}

/* Notes kind and shape of a new value of ASCII, as `value_looks` tells them. */
static bool note_looks(Found *found, Bytes value)
{
    uint8_t has = 0;
    for (size_t place = 0; place < value.size; place++) {
        has |= classes_of(value.at[place]);
    }
    uint8_t kind = KIND_NAME;
    if (has & SPACE) {
        kind = KIND_PHRASE;
    } else if (value.size >= 2 && value.at[0] == '-' && value.at[1] == '-') {
        kind = KIND_FLAG;
    } else if (has & SLASH) {
        kind = KIND_PATH;
    } else if (!(has & NOT_NUMBER)) {
        kind = KIND_NUMBER;
    } else if (!(has & NOT_HEX) && (has & DIGIT) && value.size >= SHORTEST_HEX) {
        kind = KIND_HEX;
    } else if (!(has & DOT) && (has & DIGIT)) {
        kind = KIND_ID;
    } else if (!(has & DOT) && (has & UNDERSCORE)) {
        kind = KIND_SNAKE;
    }
    size_t length = value.size < LONGEST_SHAPE ? value.size : LONGEST_SHAPE;
    return rows_push(&found->kinds, kind) && rows_push(&found->shapes, (uint16_t)(length << 8 | has));
}

/* Notes the words inside a new value of ASCII, as `value_looks.find_words` tells them. */
static bool note_words(Found *found, Bytes value, int32_t owner)
{
    const uint8_t *at = value.at, *end = value.at + value.size;
    int32_t many = 0;
    size_t capitals = 0; /* in the run right before */
    while (at < end) {
        const uint8_t *run = at;
        if (is_lower(*at)) {
            while (at < end && is_lower(*at)) {
                at++;
            }
        } else if (is_upper(*at)) {
            while (at < end && is_upper(*at)) {
                at++;
            }
        } else if (is_digit(*at)) {
            while (at < end && is_digit(*at)) {
                at++;
            }
        } else {
            at++;
            capitals = 0;
            continue;
        }
        /* A run of small letters takes along the capital before it, unless that ends a word of capitals. */
        const uint8_t *begin = is_lower(*run) && (capitals == 1 || capitals == 2) ? run - 1 : run;
        if (at - run >= 3) {
            many++;
            if (!rows_push(&found->value_words, bucket_of(begin, (size_t)(at - begin))) ||
                !rows_push(&found->word_owners, owner)) {
                return false;
            }
        }
        capitals = is_upper(*run) ? (size_t)(at - run) : 0;
    }
    return rows_push(&found->words_of_value, many > 1 ? many : 1);
}

/* Notes a new value; one that is not ASCII is left to Python, with a row that it fills. */
static bool note_new_value(Found *found, Bytes value, bool is_ascii)
{
    uint32_t place = (uint32_t)found->kinds.count;
    if (is_ascii) {
        return note_looks(found, value) && note_words(found, value, (int32_t)place);
    }
    if (!rows_push(&found->kinds, 0) || !rows_push(&found->shapes, 0) || !rows_push(&found->words_of_value, 1) ||
        !rows_push(&found->beyond, place) || !rows_reserve(&found->beyond_text, value.size + 1)) {
        return false;
    }
    memcpy(found->beyond_text.at + found->beyond_text.count, value.at, value.size);
    found->beyond_text.count += value.size;
    found->beyond_text.at[found->beyond_text.count++] = '\n';
    return true;
}

/* ---- Tokens ----------------------------------------------------------------------------------------------------- */

static Bytes token_at(const Tokens *tokens, size_t token)
{
    return (Bytes){tokens->text.at + tokens->starts.at[token], tokens->starts.at[token + 1] - tokens->starts.at[token]};
}

static size_t token_count(const Tokens *tokens)
{
    return tokens->starts.count ? tokens->starts.count - 1 : 0;
}

/* Forgets all tokens, which are cheap to read again and many to remember; `begin_tokens` comes next. */
static void forget_tokens(Tokens *tokens)
{
    rows_free(&tokens->text);
    rows_free(&tokens->starts);
    rows_free(&tokens->slots);
    rows_free(&tokens->first);
    rows_free(&tokens->held);
    rows_free(&tokens->labels);
    rows_free(&tokens->words);
    rows_free(&tokens->is_ascii);
}

/* Starts with the end of a text as the only token. */
static bool begin_tokens(Tokens *tokens)
{
    return rows_push(&tokens->starts, 0) && rows_push(&tokens->starts, 0) && rows_push(&tokens->first, 0) &&
           rows_push(&tokens->first, 0) && rows_push(&tokens->labels, 0) && rows_push(&tokens->words, 0) &&
           rows_push(&tokens->is_ascii, 1);
}

static size_t next_slot(const TokenSlots *slots, size_t slot)
{
    return slot + 1 == slots->count ? 0 : slot + 1;
}

static bool make_slots(Tokens *tokens)
{
    size_t wanted = tokens->slots.count * 2 + 4096;
    TokenSlots slots = {0};
    if (!rows_reserve(&slots, wanted)) {
        return false;
    }
    slots.count = wanted;
    memset(slots.at, 0, wanted * sizeof(*slots.at));
    for (size_t place = 0; place < tokens->slots.count; place++) {
        const TokenSlot *known = &tokens->slots.at[place];
        if (known->token) {
            size_t slot = slot_of(known->hash, wanted);
            while (slots.at[slot].token) {
                slot = next_slot(&slots, slot);
            }
            slots.at[slot] = *known;
        }
    }
    rows_free(&tokens->slots);
    tokens->slots = slots;
    return true;
}

/* Returns the place of a token among the slots, of which there are some and half are free: an empty one where it is not there. */
static size_t find_slot(const Tokens *tokens, uint64_t hash)
{
    size_t slot = slot_of(hash, tokens->slots.count);
    while (tokens->slots.at[slot].token && tokens->slots.at[slot].hash != hash) {
        slot = next_slot(&tokens->slots, slot);
    }
    return slot;
}

/* Returns the number of a token; a new one gets the next. 0 where memory is out. */
static uint32_t number_of_token(ValueTable *table, Bytes token, bool is_ascii)
{
    Tokens *tokens = &table->tokens;
    if (token_count(tokens) * 2 >= tokens->slots.count && !make_slots(tokens)) {
        return 0;
    }
    uint64_t hash = hash_bytes(token, table->seed);
    TokenSlot *slot = &tokens->slots.at[find_slot(tokens, hash)];
    if (slot->token) {
        return slot->token;
    }
    uint32_t number = (uint32_t)token_count(tokens);
    if (!rows_reserve(&tokens->text, token.size) || !rows_push(&tokens->is_ascii, is_ascii)) {
        return 0;
    }
    memcpy(tokens->text.at + tokens->text.count, token.at, token.size);
    tokens->text.count += token.size;
    if (!rows_push(&tokens->starts, (uint32_t)tokens->text.count)) {
        return 0;
    }
    *slot = (TokenSlot){hash, number};
    return number;
}

/* ---- Cutting a block --------------------------------------------------------------------------------------------- */

enum { TOKEN_INSIDE, TOKEN_END, TOKEN_BEYOND }; /* a byte of a token; one that ends it; the first of a character beyond ASCII */

static uint8_t kind_of_byte[256];

void values_prepare(void)
{
    for (int byte = 0; byte < 256; byte++) {
        bool inside = byte < 128 && is_inside_token((uint8_t)byte);
        kind_of_byte[byte] = byte >= 128 ? TOKEN_BEYOND : inside ? TOKEN_INSIDE : TOKEN_END;
    }
}

/* Finds the next token from `*at` on, and leads `*at` behind it. An empty one at a NUL is the end of a text; NULL, of the block. */
static Bytes next_token(const uint8_t **at, const uint8_t *end, const uint8_t *separators, bool *is_ascii)
{
    const uint8_t *start = NULL, *here = *at;
    *is_ascii = true;
    while (here < end) {
        if (kind_of_byte[*here] == TOKEN_INSIDE) {
            start = start == NULL ? here : start;
            here++;
        } else if (kind_of_byte[*here] == TOKEN_END) {
            if (start != NULL) {
                break;
            }
            here++;
            if (here[-1] == 0) {
                *at = here;
                return (Bytes){here - 1, 0};
            }
        } else {
            uint32_t character = 0;
            size_t size = read_character(here, end, &character);
            if (is_separator(character, separators)) {
                if (start != NULL) {
                    break;
                }
            } else {
                start = start == NULL ? here : start;
                *is_ascii = false;
            }
            here += size;
        }
    }
    *at = here;
    return start == NULL ? (Bytes){NULL, 0} : (Bytes){start, (size_t)(here - start)};
}

/* Whether the character that begins here is one of `\w`: a letter or a digit of any script, or an underscore. The
 * interpreter's tables are constant, so that they can be read without its lock. */
static bool is_word_at(const uint8_t *at, const uint8_t *end)
{
    if (at == end || *at < 128) {
        return at < end && (is_alnum(*at) || *at == '_');
    }
    uint32_t character;
    read_character(at, end, &character);
    return Py_UNICODE_ISALNUM(character);
}

/* Whether the character that ends before `at` is one. */
static bool is_word_before(const uint8_t *at, const uint8_t *begin, const uint8_t *end)
{
    if (at == begin) {
        return false;
    }
    const uint8_t *start = at - 1;
    while (start > begin && (*start & 0xc0) == 0x80) {
        start--;
    }
    return is_word_at(start, end);
}

/* Returns the end of the quoted phrase that begins at this quote, NULL where none does: `values.PHRASE`. */
static const uint8_t *end_of_phrase(const uint8_t *at, const uint8_t *begin, const uint8_t *end, bool *is_ascii)
{
    uint8_t quote = *at;
    size_t least = quote == '`' ? 3 : 4, many = 0;
    *is_ascii = true;
    if (quote == '\'' && is_word_before(at, begin, end)) {
        return NULL;
    }
    for (const uint8_t *inside = at + 1; inside < end; inside++) {
        if (*inside == quote) {
            bool closes = many >= least && !(quote == '\'' && is_word_at(inside + 1, end));
            return closes ? inside + 1 : NULL;
        }
        if (*inside == '\n' || (*inside == '\\' && quote != '`') || many > 70) {
            return NULL;
        }
        if (*inside >= 128) {
            *is_ascii = false;
        }
        many += (*inside & 0xc0) != 0x80; /* characters, not bytes */
        if (many > 70) {
            return NULL;
        }
    }
    return NULL;
}

/* Finds the next phrase from `*at` on, as `next_token` finds tokens. */
static Bytes next_phrase(const uint8_t **at, const uint8_t *begin, const uint8_t *end, bool *is_ascii)
{
    for (const uint8_t *here = *at; here < end; here++) {
        if (*here == 0) {
            *at = here + 1;
            return (Bytes){here, 0};
        }
        if (is_quote(*here)) {
            const uint8_t *behind = end_of_phrase(here, begin, end, is_ascii);
            if (behind != NULL) {
                *at = behind;
                return (Bytes){here, (size_t)(behind - here)};
            }
        }
    }
    *at = end;
    return (Bytes){NULL, 0};
}

bool table_scan(ValueTable *table, Bytes block, const uint8_t *separators)
{
    Tokens *tokens = &table->tokens;
    table->values_before = table->values.hashes.count;
    if (token_count(tokens) > REMEMBERED || tokens->text.count > LARGEST_BLOCK) {
        forget_tokens(tokens);
    }
    if (token_count(tokens) == 0 && !begin_tokens(tokens)) {
        return false;
    }
    table->read_until = token_count(tokens);
    const uint8_t *begin = block.at, *end = block.at + block.size;
    for (int pass = 0; pass < 2; pass++) { /* all tokens, then all phrases: in this order new values get their numbers */
        NumberRows *codes = pass == 0 ? &table->codes : &table->phrases;
        const uint8_t *at = begin;
        for (;;) {
            bool is_ascii = true;
            Bytes next = pass == 0 ? next_token(&at, end, separators, &is_ascii)
                                   : next_phrase(&at, begin, end, &is_ascii);
            if (next.at == NULL) {
                break;
            }
            uint32_t code = next.size == 0 ? 0 : number_of_token(table, next, is_ascii);
            if ((code == 0 && next.size > 0) || !rows_push(codes, code)) {
                return false;
            }
        }
    }
    return true;
}

static void drop_block(ValueTable *table)
{
    rows_free(&table->codes);
    rows_free(&table->phrases);
}

void table_give_up(ValueTable *table)
{
    drop_block(table);
    forget_tokens(&table->tokens); /* some were not read */
    take_back_numbers(&table->values, table->values_before);
}

/* ---- From tokens to the values of each text ----------------------------------------------------------------------- */

/* Adds a value to those that tokens hold. One that was not met before gets the next number and is looked at. */
static bool hold_value(ValueTable *table, Found *found, Bytes value, bool is_ascii)
{
    uint64_t hash = hash_bytes(value, table->seed);
    int32_t number = find_number(&table->values, hash);
    if (number < 0) {
        number = add_number(&table->values, hash);
        if (number < 0 || !note_new_value(found, value, is_ascii)) {
            return false;
        }
    }
    return rows_push(&table->tokens.held, number);
}

/* Reads the tokens that are new: their values get numbers, and new values are looked at. */
static bool read_fresh(ValueTable *table, const Described *described, Found *found)
{
    Tokens *tokens = &table->tokens;
    TokenValues values;
    for (size_t token = table->read_until; token < token_count(tokens); token++) {
        uint8_t label = 0;
        uint16_t word = 0;
        if (tokens->is_ascii.at[token]) {
            Bytes text = token_at(tokens, token);
            read_token(&values, text);
            for (size_t each = 0; each < values.count; each++) {
                if (!hold_value(table, found, values.at[each], true)) {
                    return false;
                }
            }
            if (!is_quote(*text.at)) {
                label = label_of(table, text);
                word = plain_word_of(table, text);
            }
        } else {
            for (size_t each = 0; each < described->value_count; each++) {
                Bytes value = described->values[each];
                bool is_ascii = true;
                for (size_t place = 0; place < value.size; place++) {
                    is_ascii &= value.at[place] < 128;
                }
                if (!hold_value(table, found, value, is_ascii)) {
                    return false;
                }
            }
            label = described->label;
            word = described->word;
            described++;
        }
        if (!rows_push(&tokens->first, (uint32_t)tokens->held.count) || !rows_push(&tokens->labels, label) ||
            !rows_push(&tokens->words, word)) {
            return false;
        }
    }
    table->read_until = token_count(tokens);
    return true;
}

static int compare_keys(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void sort_keys(uint64_t *keys, size_t count)
{
    if (count > 32) {
        qsort(keys, count, sizeof(*keys), compare_keys);
        return;
    }
    for (size_t next = 1; next < count; next++) {
        uint64_t key = keys[next];
        size_t place = next;
        for (; place > 0 && keys[place - 1] > key; place--) {
            keys[place] = keys[place - 1];
        }
        keys[place] = key;
    }
}

/* Adds the values of a token to those of its text, each with what the token before said of it. */
static bool add_held(const Tokens *tokens, uint32_t code, uint8_t label, HashRows *keys)
{
    uint32_t first = tokens->first.at[code], end = tokens->first.at[code + 1];
    if (!rows_reserve(keys, end - first)) {
        return false;
    }
    for (uint32_t place = first; place < end; place++) {
        keys->at[keys->count++] = (uint64_t)tokens->held.at[place] << LABEL_BITS | label;
    }
    return true;
}

/* Adds a text to what was found: its values in the order of their numbers, each once, with all its labels. */
static bool close_text(Found *found, HashRows *keys, int32_t words)
{
    sort_keys(keys->at, keys->count);
    int64_t last = -1;
    for (size_t place = 0; place < keys->count; place++) {
        int64_t number = (int64_t)(keys->at[place] >> LABEL_BITS);
        uint8_t label = keys->at[place] & ((1 << LABEL_BITS) - 1);
        if (number == last) {
            found->labels.at[found->labels.count - 1] |= label;
        } else if (!rows_push(&found->ids, (int32_t)number) || !rows_push(&found->labels, label)) {
            return false;
        }
        last = number;
    }
    keys->count = 0;
    return rows_push(&found->starts, (int64_t)found->ids.count) && rows_push(&found->word_counts, words);
}

/* Walks through the tokens and the phrases of the block side by side, text by text, and adds each text to what was found. */
static bool gather_texts(ValueTable *table, Found *found)
{
    const Tokens *tokens = &table->tokens;
    HashRows keys = {0}; /* of this text: the number of a value << LABEL_BITS | what stands before it */
    uint8_t label = 0;
    int32_t words = 0;
    size_t phrase = 0;
    bool good = rows_push(&found->starts, 0);
    for (size_t place = 0; good && place < table->codes.count; place++) {
        uint32_t code = table->codes.at[place];
        if (code != 0) {
            good = add_held(tokens, code, label, &keys);
            label = tokens->labels.at[code];
            if (tokens->words.at[code]) {
                good = good && rows_push(&found->words, tokens->words.at[code]);
                words++;
            }
            continue;
        }
        for (; good && phrase < table->phrases.count && table->phrases.at[phrase] != 0; phrase++) {
            good = add_held(tokens, table->phrases.at[phrase], 0, &keys);
        }
        phrase++;
        good = good && close_text(found, &keys, words);
        label = 0;
        words = 0;
    }
    rows_free(&keys);
    return good;
}

bool table_finish(ValueTable *table, const Described *described, Found *found)
{
    bool good = read_fresh(table, described, found) && gather_texts(table, found);
    drop_block(table);
    return good;
}

/* ---- What is known already ------------------------------------------------------------------------------------------ */

static int compare_ids(const void *one, const void *other)
{
    int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

bool table_find_known(ValueTable *table, Bytes block, const uint8_t *separators, IdRows *known, ByteRows *beyond)
{
    const Tokens *tokens = &table->tokens;
    const uint8_t *begin = block.at, *end = block.at + block.size;
    TokenValues values;
    for (int pass = 0; pass < 2; pass++) {
        const uint8_t *at = begin;
        for (;;) {
            bool is_ascii = true;
            Bytes next = pass == 0 ? next_token(&at, end, separators, &is_ascii)
                                   : next_phrase(&at, begin, end, &is_ascii);
            if (next.at == NULL) {
                break;
            }
            if (next.size == 0) {
                continue;
            }
            uint64_t hash = hash_bytes(next, table->seed);
            size_t code = tokens->slots.count ? tokens->slots.at[find_slot(tokens, hash)].token : 0;
            if (code) {
                for (uint32_t place = tokens->first.at[code]; place < tokens->first.at[code + 1]; place++) {
                    if (!rows_push(known, tokens->held.at[place])) {
                        return false;
                    }
                }
            } else if (is_ascii) {
                read_token(&values, next);
                for (size_t each = 0; each < values.count; each++) {
                    int32_t number = table_look_up(table, values.at[each]);
                    if (number >= 0 && !rows_push(known, number)) {
                        return false;
                    }
                }
            } else {
                if (!rows_reserve(beyond, next.size + 1)) {
                    return false;
                }
                memcpy(beyond->at + beyond->count, next.at, next.size);
                beyond->count += next.size;
                beyond->at[beyond->count++] = '\n';
            }
        }
    }
    if (known->count > 1) {
        qsort(known->at, known->count, sizeof(*known->at), compare_ids);
        size_t kept = 1;
        for (size_t place = 1; place < known->count; place++) {
            if (known->at[place] != known->at[kept - 1]) {
                known->at[kept++] = known->at[place];
            }
        }
        known->count = kept;
    }
    return true;
}

/* ---- The end -------------------------------------------------------------------------------------------------------- */

void table_free(ValueTable *table)
{
    drop_block(table);
    forget_tokens(&table->tokens);
    rows_free(&table->known_text);
    rows_free(&table->known_words);
    rows_free(&table->values.hashes);
    PyMem_RawFree(table->values.slots);
    table->values.slots = NULL;
    table->values.slot_count = 0;
}

void found_free(Found *found)
{
    rows_free(&found->ids);
    rows_free(&found->starts);
    rows_free(&found->labels);
    rows_free(&found->words);
    rows_free(&found->word_counts);
    rows_free(&found->kinds);
    rows_free(&found->shapes);
    rows_free(&found->words_of_value);
    rows_free(&found->value_words);
    rows_free(&found->word_owners);
    rows_free(&found->beyond);
    rows_free(&found->beyond_text);
}
