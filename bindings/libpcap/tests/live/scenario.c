/* A program of libpcap that reads an interface as its words say, until SIGUSR1 comes and nothing is left, and prints counts of the
 * numbered packets that it has seen: NAME=VALUE ... INTERFACE. */
#define _GNU_SOURCE
#include <pcap.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1 << 16 };

struct reader {
    pcap_t *p;
    unsigned delivered, expected, late, twice, wrong, broken, errors;
    int is_filtered;
    unsigned char seen[MOST];
};

static struct reader readers[2];
static volatile sig_atomic_t over;
static volatile pid_t child;
static int handles = 1, snaplen = 2000, timeout_ms = 20, immediate, batch = -1, pause_at, pause_us, filter_at = -1, break_us, by_signal;
static int nonblock, fork_at = -1, threads, stats_at, early, scribbles, by_libpcap;
static const char *way = "dispatch", *expression = "udp port 7";

static void breaks(int signal) {
    (void)signal;
    for (int i = 0; i < handles; i++) pcap_breakloop(readers[i].p);
}

static void ends(int signal) {
    over = 1;
    if (child > 0) kill(child, SIGUSR1);
    breaks(signal);
}

static void *breaking(void *nothing) {
    while (!over) {
        usleep(break_us);
        breaks(0);
    }
    return nothing;
}

static unsigned word(const u_char *data) { return (unsigned)data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3]; }

static void take(u_char *user, const struct pcap_pkthdr *h, const u_char *data) {
    struct reader *reader = (struct reader *)user;
    reader->delivered++;
    if (scribbles) {
        /* As sipdump does, to end a text. */
        ((u_char *)data)[h->caplen] = 0;
        return;
    }
    /* libpcap in immediate mode does not cut packets that no filter has passed. */
    if (!by_libpcap && h->caplen != (h->len < (unsigned)snaplen ? h->len : (unsigned)snaplen)) reader->wrong++;
    if (h->caplen >= 46) {
        unsigned number = word(data + 42), port = data[36] << 8 | data[37];
        for (unsigned i = 46; i < h->caplen; i++) reader->wrong += data[i] != 9;
        if (number >= MOST)
            reader->wrong++;
        else if (reader->seen[number]++)
            reader->twice++;
        if (port == 7) reader->expected++;
        if (port != 7 && reader->is_filtered) reader->late++;
    }
    if ((int)reader->delivered == pause_at) usleep(pause_us);
    if ((int)reader->delivered == filter_at || (int)reader->delivered == fork_at) pcap_breakloop(reader->p);
    if (stats_at && reader->delivered % stats_at == 0) {
        struct pcap_stat stat;
        if (pcap_stats(reader->p, &stat) || stat.ps_recv < reader->delivered) reader->wrong++;
    }
}

static void filter(struct reader *reader) {
    struct bpf_program program;
    int failed = pcap_compile(reader->p, &program, expression, 1, PCAP_NETMASK_UNKNOWN);
    /* libpcap empties its socket for a new filter, and finds there that the interface was down: once. */
    if (!failed && pcap_setfilter(reader->p, &program))
        failed = !strstr(pcap_geterr(reader->p), "Network is down") || pcap_setfilter(reader->p, &program);
    if (failed) {
        printf("filter: %s\n", pcap_geterr(reader->p));
        exit(1);
    }
    pcap_freecode(&program);
    reader->is_filtered = 1;
}

/* One call of the program. */
static void step(struct reader *reader) {
    struct pcap_pkthdr *h, header;
    const u_char *data;
    int result = 0;
    pcap_t *p = reader->p;
    if (!strcmp(way, "dispatch"))
        result = pcap_dispatch(p, batch, take, (u_char *)reader);
    else if (!strcmp(way, "loop"))
        result = pcap_loop(p, batch, take, (u_char *)reader);
    else if (!strcmp(way, "next_ex")) {
        if ((result = pcap_next_ex(p, &h, &data)) == 1) take((u_char *)reader, h, data);
    } else if (!strcmp(way, "next")) {
        if ((data = pcap_next(p, &header))) take((u_char *)reader, &header, data);
        result = data != NULL;
    } else {
        struct pollfd asked = {pcap_get_selectable_fd(p), POLLIN, 0};
        poll(&asked, 1, 10);
        result = pcap_dispatch(p, 1, take, (u_char *)reader);
    }
    reader->broken += result == PCAP_ERROR_BREAK;
    reader->errors += result == PCAP_ERROR;
    if (result == PCAP_ERROR) usleep(1000);
    if (result == 0 && nonblock) usleep(200);
    if (!reader->is_filtered && filter_at >= 0 && (int)reader->delivered >= filter_at) filter(reader);
    if (fork_at >= 0 && (int)reader->delivered >= fork_at) {
        sigset_t one, before;
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        sigprocmask(SIG_BLOCK, &one, &before);
        fork_at = -1;
        child = fork();
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (child > 0) {
            int status;
            while (waitpid(child, &status, 0) < 0) continue;
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 100);
        }
        /* The breaking thread is the parent's. */
        break_us = 0;
    }
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads until the counts agree, or, if a filter's rejected packets are among them, until nothing has come for longer than a block waits. */
static void drain(struct reader *reader) {
    char error[PCAP_ERRBUF_SIZE];
    struct pcap_stat stat;
    long last = now_ms(), begun = last;
    pcap_setnonblock(reader->p, 1, error);
    while (now_ms() - begun < 5000) {
        int result = pcap_dispatch(reader->p, -1, take, (u_char *)reader);
        if (result > 0) last = now_ms();
        pcap_stats(reader->p, &stat);
        if (stat.ps_recv == stat.ps_drop + reader->delivered) break;
        if (reader->is_filtered && now_ms() - last > timeout_ms + 100) break;
        if (result == 0) usleep(500);
    }
}

static void *run(void *user) {
    struct reader *reader = user;
    while (!over) step(reader);
    drain(reader);
    return NULL;
}

static void number(const char *word, const char *name, int *value) {
    size_t len = strlen(name);
    if (!strncmp(word, name, len) && word[len] == '=') *value = atoi(word + len + 1);
}

int main(int count, char **words) {
    char error[PCAP_ERRBUF_SIZE];
    for (int i = 1; i < count - 1; i++) {
        number(words[i], "handles", &handles);
        number(words[i], "snaplen", &snaplen);
        number(words[i], "timeout", &timeout_ms);
        number(words[i], "immediate", &immediate);
        number(words[i], "batch", &batch);
        number(words[i], "pause_at", &pause_at);
        number(words[i], "pause_us", &pause_us);
        number(words[i], "filter_at", &filter_at);
        number(words[i], "early", &early);
        number(words[i], "break_us", &break_us);
        number(words[i], "by_signal", &by_signal);
        number(words[i], "nonblock", &nonblock);
        number(words[i], "fork_at", &fork_at);
        number(words[i], "threads", &threads);
        number(words[i], "stats_at", &stats_at);
        number(words[i], "scribbles", &scribbles);
        number(words[i], "by_libpcap", &by_libpcap);
        if (!strncmp(words[i], "way=", 4)) way = words[i] + 4;
        if (!strcmp(words[i], "inbound=1")) expression = "inbound and udp port 7";
    }
    for (int i = 0; i < handles; i++) {
        pcap_t *p = readers[i].p = pcap_create(words[count - 1], error);
        pcap_set_snaplen(p, snaplen);
        pcap_set_promisc(p, 1);
        pcap_set_timeout(p, timeout_ms);
        pcap_set_immediate_mode(p, immediate);
        pcap_set_buffer_size(p, 1 << 20);
        if (pcap_activate(p) < 0) {
            printf("activate: %s\n", pcap_geterr(p));
            return 1;
        }
        /* Handles of one thread must not wait for each other. */
        if (nonblock || (handles > 1 && !threads)) nonblock = !pcap_setnonblock(p, 1, error);
        if (early) filter(&readers[i]);
    }
    struct sigaction action = {.sa_handler = ends};
    sigaction(SIGUSR1, &action, NULL);
    printf("ready\n");
    fflush(stdout);
    pthread_t breaker, reading[2];
    if (break_us && by_signal) {
        struct itimerval every = {{0, break_us}, {0, break_us}};
        action.sa_handler = breaks;
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &every, NULL);
    } else if (break_us) {
        pthread_create(&breaker, NULL, breaking, NULL);
    }
    if (threads) {
        for (int i = 0; i < handles; i++) pthread_create(&reading[i], NULL, run, &readers[i]);
        for (int i = 0; i < handles; i++) pthread_join(reading[i], NULL);
    } else {
        for (int i = 0; !over; i++) step(&readers[i % handles]);
        for (int i = 0; i < handles; i++) drain(&readers[i]);
    }
    if (break_us && !by_signal) pthread_join(breaker, NULL);
    for (int i = 0; i < handles; i++) {
        struct reader *reader = &readers[i];
        struct pcap_stat stat;
        pcap_stats(reader->p, &stat);
        printf("%u delivered, %u of port 7, %u late, %u twice, %u wrong, %u received, %u dropped, %u broken, %u errors\n",
               reader->delivered, reader->expected, reader->late, reader->twice, reader->wrong, stat.ps_recv, stat.ps_drop,
               reader->broken, reader->errors);
    }
    /* A signal finds no closed handle. */
    int opened = handles;
    handles = 0;
    for (int i = 0; i < opened; i++) pcap_close(readers[i].p);
    return 0;
}
