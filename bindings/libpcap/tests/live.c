/* A program of libpcap that reads an interface in one of several ways, and prints what it saw and the statistics. */
#include <pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long delivered, bytes;
static pcap_t *p;

static void take(u_char *user, const struct pcap_pkthdr *h, const u_char *data) {
    (void)user;
    delivered++;
    for (unsigned i = 0; i < h->caplen; i++) bytes += data[i];
    bytes += h->len;
}

static void *stop(void *nothing) {
    (void)nothing;
    usleep(300000);
    pcap_breakloop(p);
    return NULL;
}

/* Reads without waiting, until nothing has come for longer than a block waits. */
static void drain(void) {
    char error[PCAP_ERRBUF_SIZE];
    pcap_setnonblock(p, 1, error);
    for (int quiet = 0; quiet < 4; quiet++) {
        while (pcap_dispatch(p, -1, take, NULL) > 0) quiet = 0;
        usleep(30000);
    }
}

static void filter(const char *expression) {
    struct bpf_program program;
    if (pcap_compile(p, &program, expression, 1, PCAP_NETMASK_UNKNOWN) || pcap_setfilter(p, &program)) {
        printf("filter: %s\n", pcap_geterr(p));
        exit(1);
    }
    pcap_freecode(&program);
}

int main(int count, char **words) {
    char error[PCAP_ERRBUF_SIZE];
    const char *mode = words[1];
    int result = 0;
    p = pcap_create(words[2], error);
    pcap_set_snaplen(p, 2000);
    pcap_set_promisc(p, 1);
    pcap_set_timeout(p, 20);
    pcap_set_buffer_size(p, 1 << 20);
    if (pcap_activate(p) < 0) {
        printf("activate: %s\n", pcap_geterr(p));
        return 1;
    }
    if (!strcmp(mode, "early")) filter("udp port 7");
    if (!strcmp(mode, "inbound")) filter("inbound and udp port 7");
    if (!strcmp(mode, "in")) pcap_setdirection(p, PCAP_D_IN);
    if (!strcmp(mode, "out")) pcap_setdirection(p, PCAP_D_OUT);
    printf("ready\n");
    fflush(stdout);
    if (!strcmp(mode, "poll")) {
        pcap_setnonblock(p, 1, error);
        while ((result = pcap_dispatch(p, -1, take, NULL)) >= 0) usleep(1000);
        printf("%s: %d %s\n", mode, result, pcap_geterr(p));
        return 0;
    }
    if (!strcmp(mode, "down")) {
        result = pcap_loop(p, -1, take, NULL);
        printf("%s: %d %s\n", mode, result, pcap_geterr(p));
        return 0;
    }
    getchar();
    if (!strcmp(mode, "late")) filter("udp port 7");
    if (!strcmp(mode, "break")) {
        pthread_t thread;
        pthread_create(&thread, NULL, stop, NULL);
        result = pcap_loop(p, -1, take, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "next")) {
        struct pcap_pkthdr *h;
        const u_char *data;
        pcap_setnonblock(p, 1, error);
        for (int quiet = 0; quiet < 100; quiet++) {
            while ((result = pcap_next_ex(p, &h, &data)) == 1) take(NULL, h, data);
            usleep(1000);
        }
    } else if (!strcmp(mode, "select")) {
        int fd = pcap_get_selectable_fd(p);
        for (;;) {
            fd_set set;
            struct timeval most = {0, 200000};
            FD_ZERO(&set);
            FD_SET(fd, &set);
            if (select(fd + 1, &set, NULL, NULL, &most) <= 0) break;
            result = pcap_dispatch(p, 1, take, NULL);
        }
    } else if (!strcmp(mode, "fork")) {
        pid_t child = fork();
        if (child) {
            waitpid(child, NULL, 0);
            return 0;
        }
        drain();
    } else {
        drain();
    }
    struct pcap_stat stat;
    pcap_stats(p, &stat);
    printf("%s: %d, %lu packets of sum %lu, %u received, %u dropped\n", mode, result, delivered, bytes, stat.ps_recv, stat.ps_drop);
    fflush(stdout);
    pcap_close(p);
    (void)count;
    return 0;
}
