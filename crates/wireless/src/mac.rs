//! The MAC throughput of one sender with one receiver and no errors (thesis 3.2.3), and the net throughput of TCP (3.2.4).

/// Headers of a TCP segment with timestamps, bytes: IP 20, TCP 20, timestamps 12.
pub const HEADERS_BYTES: f64 = 52.0;

/// The frames of a MAC layer and their times: Tables 3.1 and 3.2. Times are in microseconds and rates in Mbit/s, so their product is in
/// bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mac {
    /// T_slot.
    pub t_slot_us: f64,
    /// T_SIFS.
    pub t_sifs_us: f64,
    /// T_DIFS.
    pub t_difs_us: f64,
    /// CW_min: backoff is drawn from 0 to this.
    pub cw_min: u32,
    /// Maximum number of times that CW doubles (m of equation 3.14).
    pub doublings: u32,
    /// T_p: physical preamble.
    pub t_p_us: f64,
    /// T_PHY: PHY header.
    pub t_phy_us: f64,
    /// L_MAC: header and checksum of a data frame.
    pub l_mac_bytes: f64,
    /// L_ACK: a whole acknowledgement frame.
    pub l_ack_bytes: f64,
    /// τ: propagation.
    pub tau_us: f64,
    /// The rates of its frames.
    pub rates: Rates,
    /// LLC and SNAP header in each data frame; the thesis omits it.
    pub l_llc_bytes: f64,
}

/// Rates of frames, Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// R_DATA.
    pub data: f64,
    /// R_ACK, which is missing from Table 3.2.
    pub ack: f64,
    /// The slowest of the cell, for EIFS.
    pub lowest: f64,
}

impl Mac {
    /// 802.11b at 11 Mbit/s by Table 3.2, acknowledgements at 2 Mbit/s.
    pub const B: Mac = Mac {
        t_slot_us: 20.0,
        t_sifs_us: 10.0,
        t_difs_us: 50.0,
        cw_min: 31,
        doublings: 5,
        t_p_us: 144.0,
        t_phy_us: 48.0,
        l_mac_bytes: 34.0,
        l_ack_bytes: 14.0,
        tau_us: 1.0,
        rates: Rates { data: 11.0, ack: 2.0, lowest: 1.0 },
        l_llc_bytes: 0.0,
    };

    /// 802.11g without 802.11b stations: 54 Mbit/s, acknowledgements at 24, short slots.
    pub const G: Mac = Mac {
        t_slot_us: 9.0,
        t_difs_us: 28.0,
        cw_min: 15,
        doublings: 6,
        t_p_us: 16.0,
        t_phy_us: 4.0,
        rates: Rates { data: 54.0, ack: 24.0, lowest: 6.0 },
        ..Mac::B
    };

    /// The same with another rate for acknowledgements.
    pub const fn with_r_ack(self, r_ack_mbit_s: f64) -> Mac {
        Mac { rates: Rates { ack: r_ack_mbit_s, ..self.rates }, ..self }
    }

    /// The mean backoff of a lone sender (3.1), µs.
    pub fn backoff_us(&self) -> f64 {
        f64::from(self.cw_min) * self.t_slot_us / 2.0
    }

    /// T_Delay_DATA of a packet of `l_data_tcp_bytes`, including its IP and TCP headers (3.2, 3.5), µs.
    pub fn data_us(&self, l_data_tcp_bytes: f64) -> f64 {
        let bytes = self.l_mac_bytes + self.l_llc_bytes + l_data_tcp_bytes;
        self.t_p_us + self.t_phy_us + 8.0 * bytes / self.rates.data
    }

    /// T_Delay_ACK, µs.
    pub fn ack_us(&self, form: AckForm) -> f64 {
        let bytes = match form {
            AckForm::Printed => self.l_mac_bytes + self.l_ack_bytes,
            AckForm::Standard => self.l_ack_bytes,
        };
        self.t_p_us + self.t_phy_us + 8.0 * bytes / self.rates.ack
    }

    /// A whole exchange: DIFS, mean backoff, data, SIFS, acknowledgement (the denominator of 3.4 and 3.7), µs.
    pub fn cycle_us(&self, l_data_tcp_bytes: f64, form: AckForm) -> f64 {
        self.data_us(l_data_tcp_bytes)
            + self.ack_us(form)
            + 2.0 * self.tau_us
            + self.t_difs_us
            + self.t_sifs_us
            + self.backoff_us()
    }

    /// The MAC throughput in Mbit/s (3.4, 3.7): `l_data_bytes` of payload in a packet of `l_data_tcp_bytes`.
    pub fn throughput_mbit_s(&self, l_data_bytes: f64, l_data_tcp_bytes: f64, form: AckForm) -> f64 {
        8.0 * l_data_bytes / self.cycle_us(l_data_tcp_bytes, form)
    }

    /// How long a sender waits for the start of an acknowledgement, µs: SIFS, a slot, and the part of a frame that announces it to a
    /// receiver.
    pub fn ack_timeout_us(&self) -> f64 {
        self.t_sifs_us + self.t_slot_us + self.t_p_us + self.t_phy_us + self.tau_us
    }

    /// T_EIFS: how long a station waits after a frame that it could not decode, µs: room for an acknowledgement at the slowest rate.
    pub fn t_eifs_us(&self) -> f64 {
        self.t_sifs_us + self.with_r_ack(self.rates.lowest).ack_us(AckForm::Standard) + self.t_difs_us
    }

    /// The net throughput of TCP in Mbit/s, derived: segments of `mtu_bytes` with timestamps in one direction and one acknowledgement per
    /// two segments in the other, on the same medium. The thesis instead subtracts 15 to 20 % from the MAC throughput.
    pub fn tcp_throughput_mbit_s(&self, mtu_bytes: f64, backoff: AckBackoff) -> f64 {
        let form = AckForm::Standard;
        let segments = 2.0 * self.cycle_us(mtu_bytes, form);
        let acknowledgement = self.cycle_us(HEADERS_BYTES, form)
            - match backoff {
                AckBackoff::Serial => 0.0,
                AckBackoff::Overlapped => self.backoff_us(),
            };
        2.0 * 8.0 * (mtu_bytes - HEADERS_BYTES) / (segments + acknowledgement)
    }
}

/// Which form of acknowledgement frame is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckForm {
    /// Equation 3.6 as printed: L_MAC is added to L_ACK, although the 14 bytes are the whole frame.
    Printed,
    /// As in the standard: 14 bytes.
    Standard,
}

/// Whether the backoff of a TCP acknowledgement takes additional time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckBackoff {
    /// It follows that of the data.
    Serial,
    /// It runs while the sender of the data counts down as well.
    Overlapped,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, expected: f64, digits: i32) {
        assert!((got - expected).abs() <= 0.5001 * 10f64.powi(-digits), "{got}, expected {expected}");
    }

    #[test]
    fn equation_3_7_by_the_rate_of_acknowledgements() {
        let rows = [(1.0, 5.178, 5.888), (2.0, 5.660, 6.059), (5.5, 6.016, 6.173), (11.0, 6.126, 6.207)];
        for (r_ack, printed, standard) in rows {
            let mac = Mac::B.with_r_ack(r_ack);
            close(mac.throughput_mbit_s(1460.0, 1500.0, AckForm::Printed), printed, 3);
            close(mac.throughput_mbit_s(1460.0, 1500.0, AckForm::Standard), standard, 3);
        }
    }

    #[test]
    fn about_6_1_mbit_s_needs_a_rate_that_table_3_2_lacks() {
        let about_6_1 = |mbit_s: f64| (mbit_s - 6.1).abs() < 0.05;
        let fits = |form| {
            let fits =
                |r_ack: &&f64| about_6_1(Mac::B.with_r_ack(**r_ack).throughput_mbit_s(1460.0, 1500.0, form));
            [1.0, 2.0, 5.5, 11.0].iter().filter(fits).copied().collect::<Vec<f64>>()
        };
        assert_eq!(fits(AckForm::Printed), [11.0]);
        assert_eq!(fits(AckForm::Standard), [2.0]);
    }

    #[test]
    fn mtu_2260() {
        close(Mac::B.throughput_mbit_s(2220.0, 2260.0, AckForm::Standard), 7.160, 3);
    }

    #[test]
    fn the_net_throughput_of_tcp_is_derived_and_not_borrowed() {
        // The thesis: 4.9 to 5.2 Mbit/s, 0.61 to 0.65 MB/s.
        let serial = Mac::B.tcp_throughput_mbit_s(1500.0, AckBackoff::Serial);
        let overlapped = Mac::B.tcp_throughput_mbit_s(1500.0, AckBackoff::Overlapped);
        close(serial, 4.90, 2);
        close(overlapped, 5.24, 2);
        close(serial / 8.0, 0.61, 2);
        close(overlapped / 8.0, 0.655, 3);
    }
}
