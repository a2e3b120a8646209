/* JSON of a command: made with jansson, printed as one line. */
#ifndef CENOTE_CLI_JSON_H
#define CENOTE_CLI_JSON_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* A count, or a whole number of bytes held in a double, which may be beyond what an integer of
 * JSON holds. */
json_t *cli_json_count(double n);

/* A figure over 0; null for 0, which stands for one that is not known. */
json_t *cli_json_known(double n);

/* Appends to *array, which becomes NULL when memory runs out: so does what is packed with it. */
void cli_json_append(json_t **array, json_t *value);

/* Prints and frees `root`; NULL: memory ran out while it was made. Returns the exit status. */
int cli_json_print(const char *command, json_t *root);
int cli_json_print_to(FILE *out, const char *command, json_t *root);

#endif
