/* A program of libpcap that reads a file, or an interface once it gets a line, in one of several ways, and prints what it saw. */
#include <pcap.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static unsigned long packets, bytes;

static void take(u_char *user, const struct pcap_pkthdr *h, const u_char *data) {
    (void)user;
    packets++;
    bytes += h->caplen + data[0];
}

static pcap_t *interface(const char *name, char *error) {
    pcap_t *p = pcap_create(name, error);
    pcap_set_buffer_size(p, 64 << 20);
    pcap_set_timeout(p, 20);
    pcap_set_snaplen(p, 2000);
    return pcap_activate(p) < 0 || pcap_setnonblock(p, 1, error) ? NULL : p;
}

int main(int count, char **words) {
    char error[PCAP_ERRBUF_SIZE];
    const char *way = words[1], *name = words[2];
    int is_file = strchr(name, '/') != NULL;
    pcap_t *p = is_file ? pcap_open_offline(name, error) : interface(name, error);
    struct bpf_program program;
    struct pcap_pkthdr *h;
    const u_char *data;

    if (!p || (count > 3 && (pcap_compile(p, &program, words[3], 1, PCAP_NETMASK_UNKNOWN) || pcap_setfilter(p, &program)))) return 2;
    if (!is_file) {
        printf("ready\n");
        fflush(stdout);
        getchar();
        usleep(100000);
    }
    if (!strcmp(way, "dispatch")) while (pcap_dispatch(p, 1, take, NULL) > 0);
    if (!strcmp(way, "fileno")) while (pcap_dispatch(p, 1, take, NULL) > 0) bytes += pcap_fileno(p) < 0;
    if (!strcmp(way, "next_ex")) while (pcap_next_ex(p, &h, &data) == 1) take(NULL, h, data);
    if (!strcmp(way, "all")) while (pcap_dispatch(p, -1, take, NULL) > 0);
    printf("%lu %lu\n", packets, bytes);
    pcap_close(p);
    return 0;
}
