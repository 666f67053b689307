/* Run a command and kill it, or fail it, at one system call.
 *
 *   syscalls count COMMAND...          print the number of system calls between the marks
 *   syscalls kill N COMMAND...         SIGKILL before the N-th call between the marks is made
 *   syscalls fail N ERRNO COMMAND...   let the N-th call do nothing and return ERRNO
 *
 * Marks are getpgid(424242) and getpgid(424243). Only the first thread is watched. Exit status: that of the command,
 * 137 if it was killed. `count` prints one line "NUMBER NAME-OF-CALL" for each call on standard error.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__x86_64__)
#error "written for x86-64"
#endif

#define BEGIN_MARK 424242
#define END_MARK 424243

int main(int argc, char **argv) {
    int fail = argc > 1 && !strcmp(argv[1], "fail"), stop = argc > 1 && !strcmp(argv[1], "kill");
    int count = argc > 1 && !strcmp(argv[1], "count");
    int command = count ? 2 : stop ? 3 : 4;
    if (!(fail || stop || count) || argc <= command)
        return 2;
    long target = count ? -1 : atol(argv[2]);
    long error = fail ? atol(argv[3]) : 0;

    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execvp(argv[command], argv + command);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    long calls = 0, signal_to_send = 0;
    int inside = 0, entered = 0, failing = 0;
    for (;;) {
        if (ptrace(PTRACE_SYSCALL, child, 0, signal_to_send) < 0)
            return 3;
        signal_to_send = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) || WIFSIGNALED(status))
            break;
        if (!WIFSTOPPED(status))
            continue;
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
            signal_to_send = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
            continue;
        }
        struct user_regs_struct regs;
        ptrace(PTRACE_GETREGS, child, 0, &regs);
        entered = !entered;
        if (!entered) {
            if (failing) {
                regs.rax = -error;
                ptrace(PTRACE_SETREGS, child, 0, &regs);
                failing = 0;
            }
            continue;
        }
        if (regs.orig_rax == SYS_getpgid && regs.rdi == BEGIN_MARK)
            inside = 1;
        else if (regs.orig_rax == SYS_getpgid && regs.rdi == END_MARK)
            inside = 0;
        else if (inside) {
            calls++;
            if (count)
                fprintf(stderr, "%ld %lld\n", calls, (long long)regs.orig_rax);
            if (stop && calls == target) {
                kill(child, SIGKILL);
                waitpid(child, &status, 0);
                break;
            }
            if (fail && calls == target) {
                regs.orig_rax = -1;
                ptrace(PTRACE_SETREGS, child, 0, &regs);
                failing = 1;
            }
        }
    }
    if (count)
        printf("%ld\n", calls);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
