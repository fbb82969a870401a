package weir;

/**
 * Packets by what became of them: {@code received = passed + filtered + denied + droppedSource + droppedOutput}. Each number is
 * counted where it happens.
 *
 * @param received packets that arrived at the source, whether or not there was room for them
 * @param passed packets that passed the filter
 * @param filtered packets that the filter rejected, here or in the kernel
 * @param denied packets that a firewall rejected
 * @param droppedSource packets lost at the source, for lack of room
 * @param droppedOutput packets that passed and were not taken before the source was closed or stopped
 * @param bytes bytes on the wire of the packets that passed
 * @param lostBefore packets that the file itself says were lost when it was captured
 * @param waiting batches that wait to be taken
 * @param held batches that are held
 * @param starved times that reading stopped because too many batches were out
 * @param isFinal whether the numbers are final
 * @param lossNotRecorded whether a source that was read to its end has no counter of lost packets, as pcap files have none: then 0 of
 *     {@code lostBefore} does not say that nothing was lost
 */
public record Counts(
    long received,
    long passed,
    long filtered,
    long denied,
    long droppedSource,
    long droppedOutput,
    long bytes,
    long lostBefore,
    long waiting,
    long held,
    long starved,
    boolean isFinal,
    boolean lossNotRecorded) {}
