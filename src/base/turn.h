/* A lock that is had in the order in which it was asked for: who gives it up and asks again comes
 * after those who waited. */
#ifndef CENI_TURN_H
#define CENI_TURN_H

#include <pthread.h>
#include <stdint.h>

typedef struct ceni_turn {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t asked, given; /* how often */
} ceni_turn;

void ceni_turn_init(ceni_turn *turn);
void ceni_turn_destroy(ceni_turn *turn);
void ceni_turn_take(ceni_turn *turn);
void ceni_turn_give(ceni_turn *turn);
/* How many have it or wait for it. */
uint64_t ceni_turn_count(ceni_turn *turn);

#endif
