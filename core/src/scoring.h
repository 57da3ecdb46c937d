/* Passes over the rows of a conversation that say how likely its values are needed: the twins of loops in
 * `penstock.writing.importance`, `choice` and `vocabulary`. All arrays belong to the caller, who has checked that they are as
 * long as they have to be. A number that points outside of them is met where it is used, since another thread might write to
 * them meanwhile: then a pass returns false, and what it has filled so far means nothing.
 */
#ifndef PENSTOCK_SCORING_H
#define PENSTOCK_SCORING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs of rows: run r is rows[starts[r]] up to rows[starts[r + 1]]. */
typedef struct {
    const int32_t *starts; /* by run, and one more for the end */
    const int32_t *rows;
    size_t count;          /* of the runs */
    size_t row_count;
} Runs;

/* Finds where a run begins and ends. Returns false where that is outside of the rows. */
static inline bool find_run(const Runs *runs, size_t run, size_t *first, size_t *after)
{
    int32_t start = runs->starts[run], end = runs->starts[run + 1];
    *first = (size_t)start;
    *after = (size_t)end;
    return start >= 0 && start <= end && (size_t)end <= runs->row_count;
}

/* A number for each value: how likely it is needed, and how far it is covered. */
typedef struct {
    const float *weights;
    const float *covered;
    size_t count;
} Values;

/* Adds up what the values of excerpts lack, as if all of them stood beside plain words: (1 - covered) * weight.
 * `numbers` are the excerpts that are looked at, a sum for each. */
bool sum_lacks(const Runs *excerpts, const Values *values, const int32_t *numbers, size_t count, float *sums);

/* The same of all excerpts that are allowed; the sums of the others are left as they are. `known` has room for what each value lacks. */
bool sum_allowed_lacks(const Runs *excerpts, const Values *values, const uint8_t *allowed, float *known, float *sums);

/* Trees that ask questions: is feature `features[q]` of a value above `thresholds[q]`? The answers of a tree, read as a
 * binary number, say which of its leaves a value comes to. */
typedef struct {
    const int32_t *features;
    const int32_t *thresholds;
    size_t question_count;
    size_t feature_count;
    Runs asked;  /* by tree: its questions, the first one decides the highest bit */
    Runs leaves; /* by tree: its leaves, as many as there are answers */
} Trees;

enum { AT_ONCE = 256 }; /* values whose answers are looked at together */

/* Adds the leaves of all trees to the totals of `count` values. `table` has a row of `count` for each feature; `answers` has
 * room for twice AT_ONCE answers to each question. */
bool add_leaves(const Trees *trees, const int32_t *table, size_t count, uint8_t *answers, int32_t *totals);

/* What is counted of the mentions of some values: each is a value in a source. */
typedef struct {
    Runs sources;
    const int32_t *place_of; /* by value: its place among those that are asked about, less than 0 for any other */
    const uint8_t *flags;    /* by value */
    size_t value_count;
    size_t place_count;      /* of those that are asked about */
    const int8_t *voices;    /* by source */
    const int32_t *messages; /* by source */
    size_t voice_count;
} Mentions;

/* Fills by value and voice the number of sources that mention it and the last message that does, and by source the number of
 * its values that have the flag. `others` is NULL, or twice as many cells as `by_voice` has, all 0: then a second thread may help, and
 * the messages must ascend. */
bool count_mentions(const Mentions *mentions, int32_t *others, int32_t *by_voice, int32_t *last_by_voice, int32_t *flagged);

/* Rows by their words, as `Postings` holds them: the owners of words[w] are those of run w. */
typedef struct {
    const uint16_t *words;
    Runs owners;
} Piece;

/* Adds to `found`, by owner, how many times each of the wanted words counts; both lists of words are in order. */
bool count_owners(const Piece *piece, const uint16_t *wanted, const int32_t *times, size_t wanted_count, int32_t *found,
                  size_t found_count);

/* Adds to `many`, by wanted word, how many sources hold it in this piece. `source_of` is by owner; the owners of a word that are
 * of one source stand together. `last` has the source that was met last for each word, and is kept from piece to piece. */
bool count_sources(const Piece *piece, const uint16_t *wanted, size_t wanted_count, const int32_t *source_of,
                   size_t owner_count, int32_t *last, int32_t *many);

/* Turns the number of words that each value shares with a text into the share of its words, in steps of 1/64. `of` has how
 * many words each value has. */
void make_shares(const uint8_t *of, size_t count, int32_t *found);

/* What the rule knows of values, a row for each, and its weights, in steps. */
typedef struct {
    size_t count;
    const int32_t *last_message;
    const int32_t *in_sources;
    const int32_t *in_excerpts;
    const int32_t *crowd;
    const int8_t *kinds;
    const uint8_t *said;
    const uint8_t *said_by_assistant;
    const uint8_t *labels;
    const int32_t *of_request;
    const int32_t *of_work;
    const int32_t *recency; /* by message */
    size_t message_count;
    const int32_t *cases;   /* by kind, said, said by the assistant, key of JSON: the sum of all that has no other figure */
    size_t kind_count;
    const int32_t *parts;   /* logarithms: of 1,024 parts of an octave, */
    const int32_t *octaves; /* and of 65 octaves */
    const int32_t *weights; /* of sources, excerpts, crowd, the relation to the request, that to the work */
} RuleRows;

enum { LN_PARTS = 1024, LN_OCTAVES = 65, RULE_WEIGHTS = 5, CASES_OF_KIND = 8 };

/* Fills the logit of each value by the rule. */
bool score_rule(const RuleRows *rows, int32_t *scores);

/* Values and the results that told them first. */
typedef struct {
    Runs sources;               /* the values of each source */
    const int8_t *speakers;     /* by source */
    const int32_t *messages;    /* by source */
    const int32_t *tools;       /* by source */
    size_t value_count;
    const int32_t *last_own;    /* by value: the last message in which the assistant said or called it, less than 0 for none */
    const int32_t *first_result; /* by value: the first source that told it; one beyond the sources for none */
    const int8_t *kinds;        /* by value */
    const int16_t *shapes;      /* by value */
    int32_t spoken;             /* the sources before the assistant's last message */
} FortuneRows;

/* Counts by group; none of them is cleared before. */
typedef struct {
    uint32_t *own_by_kind;     /* what the assistant said or called, */
    uint32_t *own_by_shape;
    uint32_t *again_by_kind;   /* what it did so in more than one source, */
    uint32_t *again_by_shape;
    uint32_t *used_by_kind;    /* and what it did after a result had told it */
    uint32_t *used_by_shape;
    uint32_t *used_by_tool;
    uint32_t *used_by_both;    /* by tool and shape */
    size_t kind_count;
    size_t shape_count;
    size_t tool_count;
    size_t both_count;
    uint8_t *often;           /* by value: how many of its own sources hold it, 2 for more */
} Fortunes;

bool count_fortunes(const FortuneRows *rows, const Fortunes *fortunes);

/* Fills the logistic curve, of which `curve` has the heights from -`end` steps on, at these logits, `step` to a step, each divided
 * by `divisor` before. */
void squash(const int32_t *logits, size_t count, int32_t divisor, int32_t step, const float *curve, size_t curve_count,
            float *weights);

enum { HALVES = 1 << 16 }; /* of a number, of which each has two */

/* Returns the least of the `most` greatest numbers, of which there are as many at least; `counts` has room for HALVES. */
int32_t find_least_of_most(const int32_t *numbers, size_t count, size_t most, uint32_t *counts);

#endif
