/* Preloaded into a process, notes in the file named by POWER_CUT_JOURNAL what each fsync and fdatasync made durable.

   Of a file its inode and the size that it had when the call began; of a directory its inode and its names with
   theirs. A file that a rename is about to replace is kept under its inode in POWER_CUT_REPLACED, since a power cut
   can bring it back. One note is one write, so that a killed process leaves whole notes. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTE_BYTES = 1 << 20 };

static void note(const char *text, size_t length)
{
    int journal = open(getenv("POWER_CUT_JOURNAL"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0 || write(journal, text, length) != (ssize_t)length)
        abort(); /* a note that is missing would be a lost write that never was */
    close(journal);
}

static size_t names_of(int descriptor, unsigned long inode, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "directory %lu\n", inode);
    DIR *directory = fdopendir(openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (length + 2 * NAME_MAX < size)
            length += (size_t)snprintf(text + length, size - length, "name %lu %s\n", (unsigned long)entry->d_ino,
                                       entry->d_name);
        else
            abort();
    if (directory != NULL)
        closedir(directory);
    return length;
}

static int synced(int descriptor, const char *call)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    struct stat before;
    int is_known = fstat(descriptor, &before) == 0;
    char *text = malloc(NOTE_BYTES);
    size_t length = 0;
    if (is_known && S_ISREG(before.st_mode))
        length = (size_t)snprintf(text, NOTE_BYTES, "file %lu %ld\n", (unsigned long)before.st_ino,
                                  (long)before.st_size);
    if (is_known && S_ISDIR(before.st_mode))
        length = names_of(descriptor, (unsigned long)before.st_ino, text, NOTE_BYTES);
    int result = real(descriptor);
    if (result == 0 && length > 0)
        note(text, length);
    free(text);
    return result;
}

int fsync(int descriptor)
{
    return synced(descriptor, "fsync");
}

int fdatasync(int descriptor)
{
    return synced(descriptor, "fdatasync");
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    struct stat replaced;
    if (stat(to, &replaced) == 0 && S_ISREG(replaced.st_mode)) {
        char kept[PATH_MAX + 32];
        snprintf(kept, sizeof kept, "%s/%lu", getenv("POWER_CUT_REPLACED"), (unsigned long)replaced.st_ino);
        if (link(to, kept) != 0 && access(kept, F_OK) != 0)
            abort();
    }
    return real(from, to);
}
