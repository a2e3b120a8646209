/* Forks after using the driver: a child that goes on as it is, which has no driver, and one that
 * executes this program anew, which has its own. */
#define LOOK_UP
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_calls.h"

static int wait_for(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
    device_address address;
    start();
    DO(cuMemAlloc_v2(&address, 1 << 20));
    if (argc > 1 && !strcmp(argv[1], "child")) {
        printf("the executed child allocated\n");
        return 0;
    }
    pid_t child = fork();
    if (!child) {
        device_address more;
        _exit(cuMemAlloc_v2(&more, 1 << 20) ? 0 : 1);
    }
    int forked = wait_for(child);
    child = fork();
    if (!child) {
        execl("/proc/self/exe", argv[0], "child", (char *)NULL);
        _exit(127);
    }
    int executed = wait_for(child);
    DO(cuMemFree_v2(address));
    printf("forked %d, executed %d\n", forked, executed);
    return forked || executed;
}
