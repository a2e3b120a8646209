/* A program that a command runs: found as a shell finds it, with its streams and signals as they
 * were, its exit status kept. */
#ifndef CENOTE_CLI_CHILD_H
#define CENOTE_CLI_CHILD_H

enum { CLI_PATH = 4096 };                       /* bytes of a path, with its end */
enum { CLI_CANNOT = 126, CLI_NOT_FOUND = 127 }; /* exit statuses, as a shell's */

/* What we say must not go into a file of ours that got the number of a stream that is closed: to
 * be called first. The program gets its streams as they were. */
void cli_hold_streams(void);

/* Removes a folder of a run with all that is in it. */
void cli_remove_folder(const char *folder);

/* As execvp would; a name with a '/' is a path. CLI_OK, or the exit status of a shell. */
int cli_search_program(const char *name, char path[CLI_PATH]);
/* The same, said why. */
int cli_find_program(const char *command, const char *name, char path[CLI_PATH]);

/* The program itself, in a child. Returns only with the exit status of a failure, said why. */
int cli_exec(const char *command, const char *program, char **argv);

typedef struct cli_child {
    int (*start)(void *arg); /* in the child: sets it up, and ends in cli_exec */
    void (*look)(void *arg); /* beside it, some twenty times a second, and after its end; or NULL */
    void *arg;
} cli_child;

/* Runs it to its end; what others send us, such as SIGTERM, goes to it. CLI_OK with *status: its
 * exit status, or 128 and the number of the signal that ended it. */
int cli_child_run(const char *command, const cli_child *child, int *status);

#endif
