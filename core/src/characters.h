/* What a byte of ASCII is. */
#ifndef PENSTOCK_CHARACTERS_H
#define PENSTOCK_CHARACTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool is_lower(uint8_t byte) { return byte >= 'a' && byte <= 'z'; }
static inline bool is_upper(uint8_t byte) { return byte >= 'A' && byte <= 'Z'; }
static inline bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }
static inline bool is_letter(uint8_t byte) { return is_lower(byte) || is_upper(byte); }
static inline bool is_alnum(uint8_t byte) { return is_letter(byte) || is_digit(byte); }
static inline uint8_t to_lower(uint8_t byte) { return is_upper(byte) ? byte | 32 : byte; }

/* Whether the byte is one of these characters; NUL never is. */
static inline bool is_one_of(uint8_t byte, const char *characters)
{
    return byte != 0 && strchr(characters, byte) != NULL;
}

/* Whether the byte of ASCII can stand inside a token: `values.SEPARATORS` has every other one. */
static inline bool is_inside_token(uint8_t byte) { return is_alnum(byte) || is_one_of(byte, "_@#~$/\\.-%+"); }

/* As `str.isspace`. */
static inline bool is_blank(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r') || (byte >= 0x1c && byte <= 0x1f);
}

#endif
