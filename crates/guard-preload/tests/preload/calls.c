/*
 * Makes every call that the library stands in front of, in the current folder, and says what came of it. What it says and
 * what it leaves must be the same with the guard as without.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

extern char **environ;
static unsigned char data[300000];

static void say(const char *what, long answer)
{
    printf("%s %ld %s\n", what, answer, answer < 0 ? strerror(errno) : "");
    fflush(stdout);
}

static unsigned long sum(const void *from, size_t length)
{
    unsigned long all = 0;
    for (size_t at = 0; at < length; at++)
        all = all * 31 + ((const unsigned char *)from)[at];
    return all;
}

static void read_and_write(void)
{
    unsigned char back[20000];
    int file = open("rw", O_RDWR | O_CREAT | O_TRUNC, 0640);
    say("open", file);
    say("write", write(file, data, 10000));
    say("write more", write(file, data + 10000, 5));
    say("pwrite", pwrite(file, data, 3000, 12345));
    say("pwrite beyond", pwrite64(file, data, 10, 50000));
    say("position", lseek(file, 0, SEEK_CUR));
    say("seek", lseek(file, -100, SEEK_END));
    say("read", read(file, back, 200));
    say("read at the end", read(file, back, 200));
    say("pread", pread(file, back, 20000, 5));
    printf("%lx\n", sum(back, 20000));
    say("pread of nothing", pread(file, back, 0, 5));
    say("pread before", pread(file, back, 10, -1));
    say("pread behind", pread(file, back, 10, 1 << 20));
    say("fchmod", fchmod(file, 0755));
    say("fchmod of nothing", fchmod(-1, 0755));
    say("fchmodat", fchmodat(AT_FDCWD, ".", 0755, 0));
    say("chmod of nothing", chmod("missing", 0755));
    struct iovec to[3] = { { back, 100 }, { back + 5000, 0 }, { back + 300, 7000 } };
    say("lseek", lseek(file, 4000, SEEK_SET));
    say("readv", readv(file, to, 3));
    say("position", lseek(file, 0, SEEK_CUR));
    say("preadv", preadv(file, to, 3, 49000));
    say("preadv2", preadv2(file, to, 3, -1, 0));
    struct iovec from[2] = { { data + 77, 5000 }, { data, 5001 } };
    say("writev", writev(file, from, 2));
    say("pwritev", pwritev(file, from, 2, 333));
    say("pwritev2", pwritev2(file, from, 1, 70000, RWF_DSYNC));
    say("fsync", fsync(file));
    say("fdatasync", fdatasync(file));
    say("ftruncate", ftruncate(file, 60001));
    say("truncate", truncate("rw", 40001));
    say("truncate of nothing", truncate("none", 1));
    say("fallocate", fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 10000));
    say("posix_fallocate", posix_fallocate(file, 0, 45000));
    say("size", lseek(file, 0, SEEK_END));
    say("close", close(file));
    say("close again", close(file));
    say("read closed", read(file, back, 1));
    say("write closed", write(file, back, 1));
    file = open("rw", O_RDONLY);
    say("write to what is read", write(file, data, 1));
    say("ftruncate of what is read", ftruncate(file, 1));
    close(file);
    file = open("rw", O_WRONLY | O_APPEND);
    say("read of what is written", read(file, back, 1));
    say("append", write(file, "end", 3));
    say("pwrite to what appends", pwrite(file, "End", 3, 0));
    say("position", lseek(file, 0, SEEK_CUR));
    say("setfl", fcntl(file, F_SETFL, 0));
    say("write in place", pwrite(file, "begin", 5, 0));
    close(file);
    say("exclusive", open("rw", O_CREAT | O_EXCL | O_RDWR, 0600));
    file = openat(AT_FDCWD, "rw2", O_CREAT | O_WRONLY | O_SYNC, 0600);
    say("write through", write(file, data, 9999));
    close(file);
    file = creat("rw3", 0600);
    say("creat", write(file, data, 9999));
    close(file);
    file = creat("rw3", 0600);
    say("cut by creat", lseek(file, 0, SEEK_END));
    say("write", write(file, "new", 3));
    close(file);
}

static void duplicates(void)
{
    char back[10] = "";
    int file = open("dup", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int other = dup(file), third = fcntl(file, F_DUPFD, 100), fourth = dup2(file, 50), fifth = dup3(file, 51, O_CLOEXEC);
    printf("%d %d %d\n", third, fourth, fifth);
    write(file, "one ", 4), write(other, "two ", 4), write(third, "three ", 6), write(fourth, "four ", 5);
    close(file);
    say("write by another", write(fifth, "five", 4));
    say("position", lseek(other, 0, SEEK_CUR));
    int plain = open("/dev/null", O_WRONLY);
    dup2(plain, other);
    say("write to nothing", write(other, "none", 4));
    say("read", pread(third, back, 9, 0));
    printf("%s\n", back);
    say("close_range", close_range(50, 60, 0));
    say("closed", write(50, "x", 1));
    closefrom(90);
    say("closed too", write(third, "x", 1));
    /* The lowest number that is free is the next. */
    close(0);
    say("lowest", open("dup", O_RDONLY));
    say("read", read(0, back, 3));
    close(other), close(plain);
}

static void streams(void)
{
    char line[100];
    FILE *stream = fopen("stream", "w");
    for (int at = 0; at < 3000; at++)
        fprintf(stream, "line %d\n", at);
    say("fseek", fseek(stream, 5, SEEK_SET));
    fputs("0000", stream);
    say("ftell", ftell(stream));
    say("fileno", fileno(stream) > 2);
    fflush(stream);
    say("fsync", fsync(fileno(stream)));
    say("fclose", fclose(stream));
    stream = fopen("stream", "a+");
    fputs("the end\n", stream);
    rewind(stream);
    fgets(line, sizeof line, stream);
    printf("%s", line);
    say("fseek", fseek(stream, -8, SEEK_END));
    fgets(line, sizeof line, stream);
    printf("%s", line);
    fclose(stream);
    stream = fopen("stream", "r+");
    fseek(stream, 10000, SEEK_SET);
    size_t count = fread(line, 1, 20, stream);
    printf("%zu %.20s\n", count, line);
    fseek(stream, 10000, SEEK_SET);
    fwrite("REPLACED", 1, 8, stream);
    stream = freopen("stream2", "w", stream);
    fputs("another\n", stream);
    fclose(stream);
    stream = fdopen(open("stream2", O_RDONLY), "r");
    printf("%d", getc(stream));
    printf("%d\n", ungetc('x', stream));
    fscanf(stream, "%99s", line);
    printf("%s %d %d\n", line, feof(stream), ferror(stream));
    fclose(stream);
    printf("%s\n", fopen("none", "r") ? "there" : strerror(errno));
    printf("%s\n", fopen("none", "q") ? "there" : strerror(errno));
    printf("%s\n", fopen("stream", "wx") ? "there" : strerror(errno));
    stream = fopen("stream", "r");
    say("write to what is read", fputs("x", stream) == EOF ? -1 : 0);
    fclose(stream);
    /* Standard output goes into a file for a while. */
    fflush(stdout);
    int before = dup(1), file = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, 1);
    close(file);
    printf("printed into a file\n");
    puts("and put");
    fflush(stdout);
    dup2(before, 1);
    close(before);
    puts("printed as before");
    fflush(stdout);
}

static void *write_many(void *argument)
{
    long number = (long)argument;
    for (int at = 0; at < 200; at++) {
        char text[50];
        int file = open("threads", O_WRONLY | O_APPEND | O_CREAT, 0600);
        write(file, text, sprintf(text, "%ld %03d\n", number, at));
        close(file);
    }
    return NULL;
}

static void processes(void)
{
    int file = open("fork", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, "parent\n", 7);
    if (fork() == 0) {
        write(file, "child\n", 6);
        close(file);
        file = open("forked", O_RDWR | O_CREAT | O_TRUNC, 0600);
        write(file, data, 100000);
        _exit(3);
    }
    int status;
    wait(&status);
    say("child", WEXITSTATUS(status));
    write(file, "parent again\n", 13);
    pid_t child = vfork();
    if (child == 0) {
        dup2(file, 1);
        execlp("echo", "echo", "by exec", NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    say("exec", WEXITSTATUS(status));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char *words[] = { "seq", "1000", NULL };
    say("spawn", posix_spawnp(&child, "seq", &actions, NULL, words, environ));
    waitpid(child, &status, 0);
    say("spawned", WEXITSTATUS(status));
    /* Many at one position. */
    for (int at = 0; at < 4; at++)
        if (fork() == 0) {
            for (int line = 0; line < 50; line++)
                write(file, "0123456789\n", 11);
            exit(0);
        }
    while (wait(&status) > 0) {
    }
    say("length", lseek(file, 0, SEEK_END));
    close(file);
    pthread_t threads[4];
    for (long at = 0; at < 4; at++)
        pthread_create(&threads[at], NULL, write_many, (void *)at);
    for (int at = 0; at < 4; at++) {
        /* Forks while others write. */
        if ((child = fork()) == 0)
            _exit(0);
        waitpid(child, &status, 0);
    }
    for (int at = 0; at < 4; at++)
        pthread_join(threads[at], NULL);
    struct stat found;
    stat("threads", &found);
    say("threads", found.st_size);
    unlink("threads");
    system("sort -o fork fork");
}

static void names(void)
{
    int file = open("name", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, data, 20000);
    say("link", link("name", "name2"));
    say("rename", rename("name", "name3"));
    say("write on", pwrite(file, "renamed", 7, 8000));
    say("unlink", unlink("name2"));
    say("rename over", rename("rw3", "name3"));
    say("write on", pwrite(file, "gone", 4, 9000));
    close(file);
    say("remove", remove("name3"));
    say("unlinkat", unlinkat(AT_FDCWD, "none", 0));
    mkdir("folder", 0700);
    say("remove a folder", remove("folder"));
    file = open("times", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, data, 5000);
    struct timespec old[2] = { { 1000000000, 5 }, { 1000000001, 6 } };
    say("futimens", futimens(file, old));
    close(file);
    struct timeval older[2] = { { 900000000, 0 }, { 900000001, 0 } };
    say("utimes", utimes("times", older));
    struct utimbuf oldest = { 800000000, 800000001 };
    say("utime", utime("times", &oldest));
    say("utimensat", utimensat(AT_FDCWD, "times", old, AT_SYMLINK_NOFOLLOW));
    struct stat found;
    stat("times", &found);
    say("time", found.st_mtim.tv_sec);
    file = open("times", O_RDONLY);
    unsigned char back[5000];
    say("read", read(file, back, 5000));
    close(file);
    char temporary[] = "tempXXXXXX";
    file = mkstemp(temporary);
    say("mkstemp", write(file, data, 8192));
    close(file);
    rename(temporary, "temporary");
}


static void on_bus(int signal)
{
    (void)signal;
    write(2, "bus\n", 4);
    _exit(7);
}

static void mappings(void)
{
    int file = open("map", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, data, 20000);
    close(file);
    file = open("map", O_RDONLY);
    unsigned char *map = mmap(NULL, 20000, PROT_READ, MAP_SHARED, file, 0);
    printf("%lx\n", sum(map, 20000));
    munmap(map, 20000);
    map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 4096);
    map[5] = 1;
    printf("%lx\n", sum(map, 8192));
    munmap(map, 8192);
    close(file);
    /* The program's own handler of the signal is the program's. */
    struct sigaction action = { .sa_handler = on_bus }, now;
    say("sigaction", sigaction(SIGBUS, &action, NULL));
    sigaction(SIGBUS, NULL, &now);
    say("handler", now.sa_handler == on_bus);
    if (fork() == 0) {
        file = open("map", O_RDONLY);
        map = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, file, 0);
        exit(map[500000]);
    }
    int status;
    wait(&status);
    say("fault", WEXITSTATUS(status));
}

int main(void)
{
    for (size_t at = 0; at < sizeof data; at++)
        data[at] = (unsigned char)(at * 7 + (at >> 9));
    read_and_write();
    duplicates();
    streams();
    processes();
    names();
    mappings();
    return 0;
}
