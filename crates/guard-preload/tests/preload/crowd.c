/* One of several programs that change the same files, in ways drawn from a seed: written over, appended to, cut, made anew, replaced,
 * removed, made durable, read. Ends after so many changes, or with 3 at the first call that fails for another reason than that a file is
 * not there, and says which. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long state;
static unsigned long draw(unsigned long below)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static char data[5 << 20], back[1 << 16];
static const char *name, *what;

static int good(long answer, const char *call)
{
    if (answer >= 0 || errno == ENOENT)
        return answer >= 0;
    printf("%s of %s, which is being %s: %s\n", call, name, what, strerror(errno));
    exit(3);
}

static const char *some(unsigned long count)
{
    /* Every byte alike, or none. */
    memset(data, 1 + (int)draw(255), count);
    if (draw(2))
        for (unsigned long at = 0; at < count; at += 64)
            memcpy(data + at, &state, 8), draw(2);
    return data;
}

int main(int count, char **words)
{
    static const unsigned long tops[] = {3000, 20000, 90000, 300000, 1500000, 5000000};
    static const unsigned long lengths[] = {1, 100, 2048, 4096, 5000, 16384, 70000};
    char names[12][32], mine[64];
    state = strtoul(words[1], 0, 10) * 0x9E3779B97F4A7C15ul + 1;
    for (int i = 0; i < 12; i++)
        snprintf(names[i], sizeof names[i], "f%d", i);
    for (long left = strtol(words[2], 0, 10); left > 0; left--) {
        unsigned long which = draw(12), top = tops[which % 6], kind = draw(12);
        int file;
        name = names[which];
        if (kind < 5) {
            what = "written over";
            if (!good(file = open(name, O_RDWR | O_CREAT, 0644), "open"))
                continue;
            for (unsigned long writes = 1 + draw(7); writes > 0; writes--) {
                unsigned long length = lengths[draw(7)];
                good(pwrite(file, some(length), length, (long)draw(top)), "pwrite");
                if (draw(4) == 0)
                    good(draw(2) ? fsync(file) : fdatasync(file), "fsync");
            }
        } else if (kind < 7) {
            what = "appended to";
            if (!good(file = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644), "open"))
                continue;
            unsigned long length = 1 + draw(30000);
            good(write(file, some(length), length), "write");
            if (draw(2))
                good(fsync(file), "fsync");
        } else if (kind == 7) {
            what = "made anew";
            if (!good(file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644), "open"))
                continue;
            unsigned long length = 1 + draw(top);
            good(write(file, some(length), length), "write");
            if (draw(3) == 0)
                good(fsync(file), "fsync");
        } else if (kind == 8) {
            what = "cut";
            if (!good(file = open(name, O_RDWR | O_CREAT, 0644), "open"))
                continue;
            good(ftruncate(file, (long)draw(top)), "ftruncate");
        } else if (kind == 9) {
            what = "replaced";
            snprintf(mine, sizeof mine, "%s.%s", name, words[1]);
            if (!good(file = open(mine, O_WRONLY | O_CREAT | O_TRUNC, 0644), "open"))
                continue;
            unsigned long length = 1 + draw(top);
            good(write(file, some(length), length), "write");
            good(rename(mine, name), "rename");
        } else if (kind == 10) {
            what = "removed";
            good(unlink(name), "unlink");
            continue;
        } else {
            what = "read";
            if (!good(file = open(name, O_RDONLY), "open"))
                continue;
            long got;
            while (good(got = read(file, back, sizeof back), "read") && got > 0) {
            }
        }
        good(close(file), "close");
    }
    return 0;
}
