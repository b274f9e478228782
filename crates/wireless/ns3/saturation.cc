// Saturated stations in ns-3: the case of crates/wireless/src/saturation.rs, for `cargo xtask ns3`.
//
//   saturation STATIONS SECONDS SEED
//
// n stations of 802.11b that hear each other always have a packet for a receiver that sends nothing. 1472 bytes of UDP payload, 1500 of
// IP, 8 of LLC; 11 Mbit/s, acknowledgements too; long preambles; no RTS. Prints the payload that the receiver got, Mbit/s.

#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/mobility-module.h"
#include "ns3/network-module.h"
#include "ns3/wifi-module.h"

using namespace ns3;

namespace {

constexpr uint32_t PAYLOAD_BYTES = 1472;
constexpr uint16_t PORT = 9;
// Nothing is counted before: addresses are resolved, and windows find their state.
constexpr double BEGIN_S = 2.0;

// Payload received since BEGIN_S.
uint64_t received_bytes = 0;

void
Received(Ptr<const Packet> packet, const Address&)
{
    if (Simulator::Now() >= Seconds(BEGIN_S))
    {
        received_bytes += packet->GetSize();
    }
}

NetDeviceContainer
Stations(NodeContainer& nodes)
{
    YansWifiChannelHelper channel;
    channel.SetPropagationDelay("ns3::ConstantSpeedPropagationDelayModel");
    // All hear each other equally well: no frame survives a collision, and no station detects the preamble of one that collides.
    channel.AddPropagationLoss("ns3::FixedRssLossModel", "Rss", DoubleValue(-50.0));
    YansWifiPhyHelper phy;
    phy.SetChannel(channel.Create());
    WifiHelper wifi;
    wifi.SetStandard(WIFI_STANDARD_80211b);
    wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                 "DataMode",
                                 StringValue("DsssRate11Mbps"),
                                 "ControlMode",
                                 StringValue("DsssRate11Mbps"));
    WifiMacHelper mac;
    mac.SetType("ns3::AdhocWifiMac");
    MobilityHelper mobility;
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.Install(nodes);
    return wifi.Install(phy, mac, nodes);
}

} // namespace

int
main(int argc, char* argv[])
{
    if (argc != 4)
    {
        std::cerr << "saturation STATIONS SECONDS SEED\n";
        return 2;
    }
    const uint32_t stations = std::strtoul(argv[1], nullptr, 10);
    const double seconds = std::strtod(argv[2], nullptr);
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(std::strtoul(argv[3], nullptr, 10));

    NodeContainer nodes;
    nodes.Create(stations + 1);
    const NetDeviceContainer devices = Stations(nodes);
    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    const Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    const InetSocketAddress receiver(interfaces.GetAddress(stations), PORT);

    PacketSinkHelper sink("ns3::UdpSocketFactory", receiver);
    const ApplicationContainer sinks = sink.Install(nodes.Get(stations));
    sinks.Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&Received));
    const double end_s = BEGIN_S + seconds;
    for (uint32_t station = 0; station < stations; station++)
    {
        OnOffHelper source("ns3::UdpSocketFactory", receiver);
        source.SetConstantRate(DataRate("8Mbps"), PAYLOAD_BYTES);
        ApplicationContainer sources = source.Install(nodes.Get(station));
        // One after the other, so that the requests for the receiver's address do not collide.
        sources.Start(Seconds(0.5 + 0.05 * station));
        sources.Stop(Seconds(end_s));
    }
    Simulator::Stop(Seconds(end_s));
    Simulator::Run();
    std::cout << received_bytes * 8.0 / seconds / 1e6 << "\n";
    Simulator::Destroy();
    return 0;
}
