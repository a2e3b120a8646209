#include "base/turn.h"

void ceni_turn_init(ceni_turn *turn) {
    turn->asked = turn->given = 0;
    pthread_mutex_init(&turn->lock, NULL);
    pthread_cond_init(&turn->changed, NULL);
}

void ceni_turn_destroy(ceni_turn *turn) {
    pthread_cond_destroy(&turn->changed);
    pthread_mutex_destroy(&turn->lock);
}

void ceni_turn_take(ceni_turn *turn) {
    pthread_mutex_lock(&turn->lock);
    uint64_t mine = turn->asked++;
    while (turn->given != mine) {
        pthread_cond_wait(&turn->changed, &turn->lock);
    }
    pthread_mutex_unlock(&turn->lock);
}

void ceni_turn_give(ceni_turn *turn) {
    pthread_mutex_lock(&turn->lock);
    turn->given++;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}

uint64_t ceni_turn_count(ceni_turn *turn) {
    pthread_mutex_lock(&turn->lock);
    uint64_t count = turn->asked - turn->given;
    pthread_mutex_unlock(&turn->lock);
    return count;
}
