#include "anchors.h"

#include <stdlib.h>

enum { KEY = 4, SIEVED = 3 };

/* The four bytes here, whatever the order of bytes in a number; with zeros behind the end. */
static inline uint32_t read_key(const uint8_t *at, size_t left)
{
    uint32_t key = 0;
    if (left >= KEY) {
        memcpy(&key, at, KEY); /* of a size that is known: one load */
    } else {
        memcpy(&key, at, left);
    }
    return key;
}

/* By a number of bytes: the mask that leaves the first so many of a key. */
typedef struct {
    uint32_t of[KEY + 1];
} Masks;

static Masks make_masks(void)
{
    static const uint8_t ones[KEY] = {0xff, 0xff, 0xff, 0xff};
    Masks masks;
    for (size_t size = 0; size <= KEY; size++) {
        masks.of[size] = size < KEY ? read_key(ones, size) : UINT32_MAX;
    }
    return masks;
}

static inline size_t bit_of(uint32_t sieved) { return (sieved * 0x9e3779b1u) >> (32 - SIEVE_BITS); }

static inline size_t slot_of_key(uint32_t key, uint32_t key_size)
{
    return (size_t)((key + key_size) * 0x85ebca6bu) >> 8;
}

static bool is_lead(uint8_t byte) { return (byte & 0xc0) != 0x80; }

/* How many characters begin in these bytes. */
static size_t count_leads(const uint8_t *at, const uint8_t *end)
{
    const uint64_t ones = 0x0101010101010101u;
    size_t leads = 0;
    for (; end - at >= 8; at += 8) { /* eight at a time: a byte that is no lead begins with the bits 1 and 0 */
        uint64_t bytes;
        memcpy(&bytes, at, 8);
        leads += 8 - (size_t)((((bytes >> 7) & ~(bytes >> 6) & ones) * ones) >> 56);
    }
    for (; at < end; at++) {
        leads += is_lead(*at);
    }
    return leads;
}

bool anchors_add(Anchors *anchors, const uint8_t *at, size_t size)
{
    Anchor anchor = {(uint32_t)anchors->text.count, (uint32_t)size, 0, (uint32_t)anchors->anchors.count};
    anchor.characters = (uint32_t)count_leads(at, at + size);
    if (!rows_reserve(&anchors->text, size) || !rows_push(&anchors->anchors, anchor)) {
        return false;
    }
    memcpy(anchors->text.at + anchors->text.count, at, size);
    anchors->text.count += size;
    return true;
}

static inline void let_through(uint64_t *sieve, uint32_t key) { sieve[bit_of(key) / 64] |= (uint64_t)1 << (bit_of(key) % 64); }

static inline bool lets_through(const uint64_t *sieve, uint32_t key) { return sieve[bit_of(key) / 64] >> (bit_of(key) % 64) & 1; }

static AnchorGroup *find_group(const Anchors *anchors, uint32_t key, uint32_t key_size)
{
    size_t slot = slot_of_key(key, key_size) & (anchors->group_count - 1);
    while (anchors->groups[slot].key_size && (anchors->groups[slot].key != key || anchors->groups[slot].key_size != key_size)) {
        slot = (slot + 1) & (anchors->group_count - 1);
    }
    return &anchors->groups[slot];
}

static uint32_t key_size_of(const Anchor *anchor) { return anchor->size < KEY ? anchor->size : KEY; }

typedef struct {
    uint32_t key, key_size;
    Anchor anchor;
} Keyed;

static int compare_keyed(const void *one, const void *other)
{
    const Keyed *a = one, *b = other;
    if (a->key_size != b->key_size) {
        return a->key_size < b->key_size ? -1 : 1;
    }
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return a->anchor.which < b->anchor.which ? -1 : 1; /* so that the order is the same everywhere */
}

bool anchors_prepare(Anchors *anchors)
{
    size_t count = anchors->anchors.count;
    anchors->group_count = 64;
    while (anchors->group_count < 4 * count) {
        anchors->group_count *= 2;
    }
    anchors->groups = PyMem_RawCalloc(anchors->group_count, sizeof(*anchors->groups));
    Keyed *keyed = PyMem_RawCalloc(count + 1, sizeof(*keyed));
    if (anchors->groups == NULL || keyed == NULL) {
        PyMem_RawFree(keyed);
        return false;
    }
    for (size_t place = 0; place < count; place++) {
        const Anchor *anchor = &anchors->anchors.at[place];
        keyed[place] = (Keyed){read_key(anchors->text.at + anchor->start, anchor->size), key_size_of(anchor), *anchor};
    }
    qsort(keyed, count, sizeof(*keyed), compare_keyed);
    for (size_t place = 0; place < count; place++) {
        anchors->anchors.at[place] = keyed[place].anchor;
        AnchorGroup *group = find_group(anchors, keyed[place].key, keyed[place].key_size);
        if (group->key_size == 0) {
            *group = (AnchorGroup){keyed[place].key, keyed[place].key_size, (uint32_t)place, 0};
        }
        group->end = (uint32_t)place + 1;
        const uint8_t *text = anchors->text.at + keyed[place].anchor.start;
        if (keyed[place].key_size == KEY) {
            let_through(anchors->sieve, read_key(text, SIEVED));
            let_through(anchors->long_sieve, keyed[place].key);
        } else {
            for (int last = 0; last < 256; last++) { /* behind two bytes any may follow, or none */
                uint8_t bytes[SIEVED] = {text[0], text[1], keyed[place].key_size == SIEVED ? text[2] : (uint8_t)last};
                let_through(anchors->sieve, read_key(bytes, SIEVED));
                let_through(anchors->short_sieve, read_key(bytes, SIEVED));
            }
        }
    }
    PyMem_RawFree(keyed);
    return true;
}

/* Adds the anchors that stand here; `key` are the bytes here, with zeros behind the end of the text. */
static bool add_hits(const Anchors *anchors, const Masks *masks, const uint8_t *here, size_t left, uint32_t key,
                     size_t characters, AnchorHits *hits)
{
    uint32_t size = lets_through(anchors->short_sieve, key & masks->of[SIEVED]) ? SHORTEST_ANCHOR : KEY;
    uint32_t longest = lets_through(anchors->long_sieve, key) ? KEY : SIEVED;
    for (; size <= longest && size <= left; size++) {
        const AnchorGroup *group = find_group(anchors, key & masks->of[size], size);
        for (uint32_t place = group->first; group->key_size && place < group->end; place++) {
            const Anchor *anchor = &anchors->anchors.at[place];
            if (anchor->size <= left && memcmp(here + size, anchors->text.at + anchor->start + size, anchor->size - size) == 0) {
                AnchorHit hit = {anchor->which, characters, characters + anchor->characters};
                if (!rows_push(hits, hit)) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* They come in the order of their starts, so that none has far to go. */
static void order_hits(AnchorHits *hits)
{
    for (size_t next = 1; next < hits->count; next++) {
        AnchorHit hit = hits->at[next];
        size_t place = next;
        while (place > 0 && (hits->at[place - 1].end > hit.end ||
                             (hits->at[place - 1].end == hit.end && hits->at[place - 1].start > hit.start))) {
            hits->at[place] = hits->at[place - 1];
            place--;
        }
        hits->at[place] = hit;
    }
}

bool anchors_find(const Anchors *anchors, const uint8_t *at, size_t size, bool is_ascii, AnchorHits *hits)
{
    const Masks masks = make_masks();
    const uint32_t sieved = masks.of[SIEVED];
    size_t characters = 0, counted = 0; /* those before `counted` */
    for (size_t here = 0; here + SHORTEST_ANCHOR <= size; here++) {
        uint32_t key = 0;
        for (; here + KEY <= size; here++) { /* most bytes get no further than here */
            memcpy(&key, at + here, KEY);
            if (lets_through(anchors->sieve, key & sieved)) {
                break;
            }
        }
        if (here + KEY > size) {
            if (here + SHORTEST_ANCHOR > size) {
                break;
            }
            key = read_key(at + here, size - here);
        }
        characters = is_ascii ? here : characters + count_leads(at + counted, at + here);
        counted = here;
        if (!add_hits(anchors, &masks, at + here, size - here, key, characters, hits)) {
            return false;
        }
    }
    order_hits(hits);
    return true;
}

void anchors_free(Anchors *anchors)
{
    rows_free(&anchors->text);
    rows_free(&anchors->anchors);
    PyMem_RawFree(anchors->groups);
    anchors->groups = NULL;
}
