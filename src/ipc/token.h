/* The text of a token: what one process writes to another by any way, to open an export with. */
#ifndef CENI_IPC_TOKEN_H
#define CENI_IPC_TOKEN_H

#include "cenote/share.h"

enum ceni_token_kind { CENI_TOKEN_EXPORT = 1, CENI_TOKEN_LEGACY = 2 };

typedef struct ceni_token {
    enum ceni_token_kind kind;
    /* CENI_TOKEN_EXPORT */
    uint64_t export_id;
    uint64_t secret[2];
    /* CENI_TOKEN_LEGACY: a range of the allocation that the driver's handle names */
    uint8_t handle[64];
    uint32_t device;        /* ceni_token_device of its uuid */
    uint64_t offset, bytes; /* less than 2^48 */
} ceni_token;

/* Writes it, for this boot of this machine. */
void ceni_token_write(const ceni_token *token, char text[CEN_SHARE_TOKEN_SIZE]);
/* The same for another machine, whichever. For tests. */
void ceni_token_elsewhere(const ceni_token *token, char text[CEN_SHARE_TOKEN_SIZE]);
/* Whether the text says that it is a token. */
bool ceni_token_is(const char *text);
/* Reads one. CEN_ERR_FORMAT: it is none; CEN_ERR_UNSUPPORTED: of another machine, or boot. */
cen_status ceni_token_read(const char *text, ceni_token *token);

/* A device's uuid in short. */
uint32_t ceni_token_device(const char *uuid);

#endif
