// What the scout says to the packet controller.
package rx_pkg;
  // The beats of a header, or of data, without a digest.
  typedef struct packed {
    // Behind the first.
    logic [21:0] beats;
    // There are none behind the first.
    logic single;
    // Words of the last beat, and how many are taken with it: one more if the digest fits.
    logic [4:0] words;
    logic [4:0] wanted;
    logic fits;
    // Nothing follows the last beat: the digest fits, or there is none.
    logic whole;
  } segment_t;
endpackage
