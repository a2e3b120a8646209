/* Random numbers that nobody can guess, from the kernel. */
#ifndef CENI_RANDOM_H
#define CENI_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/* Fills `size` bytes. False, with errno: the kernel gives none. May wait, early after the machine
 * was started. */
bool ceni_random(void *out, size_t size);

#endif
