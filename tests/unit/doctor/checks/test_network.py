"""The checks of the network judge recorded facts."""

import socket

import pytest

from helpers.doctor.jobs import faults, has_fault, job, judged, site
from mpistrat.doctor.check import Status
from mpistrat.doctor.checks.network import bandwidth, interfaces, nccl_transport
from mpistrat.doctor.checks.network.bandwidth import Speed
from mpistrat.doctor.checks.network.interfaces import Interface, Network, chosen
from mpistrat.doctor.checks.network.nccl_transport import Transport, network_in_log
from mpistrat.doctor.here import Here

LO, ETH = Interface("lo", 772), Interface("eth0", 1, 1000)
DOCKER, IB = Interface("docker0"), Interface("ib0", 32, 200000)
HSN = (Interface("hsn0", 1, 200000), Interface("hsn1", 1, 200000))
PLAIN = (DOCKER, ETH, LO)
TWO_NODES = job(["n0", "n1"], "srun")


@pytest.mark.parametrize(
    ("there", "wanted", "names"),
    [
        (PLAIN, "", "eth0"),
        ((*PLAIN, IB), "", "ib0"),
        ((DOCKER, LO), "", "docker0"),
        ((LO,), "", "lo"),
        (PLAIN, "docker0", "docker0"),
        (PLAIN, "^docker0", "eth0 lo"),
        (PLAIN, "^docker,lo", "eth0"),
        ((*PLAIN, *HSN), "hsn", "hsn0 hsn1"),
        ((*PLAIN, *HSN), "=hsn1", "hsn1"),
        (PLAIN, "ib0", ""),
    ],
)
def test_what_nccl_would_choose(there, wanted, names):
    assert " ".join(i.name for i in chosen(Network(there, wanted))) == names


def test_interfaces_come_in_the_kernels_order():
    """As NCCL asks for them: by name a container's bridge, br-0, would come before eth0."""
    there = [interface.name for interface in interfaces.CHECK.measure(Here({})).interfaces]
    order = [name for _, name in socket.if_nameindex() if name in there]
    assert there == order


def test_a_containers_bridge_after_the_network_is_well(tmp_path, monkeypatch):
    for index, name in enumerate(["eth0", "br-0"]):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "ifindex").write_text(f"{index + 2}\n")
        (folder / "operstate").write_text("up\n")
    monkeypatch.setattr(interfaces, "_CLASS", tmp_path)
    found = interfaces.CHECK.measure(Here({}))
    assert [interface.name for interface in found.interfaces] == ["eth0", "br-0"]
    assert faults(network(found, found)) == []


def network(*facts, of=TWO_NODES):
    return judged(interfaces.CHECK, facts, of)


def test_interfaces_that_are_well():
    for wanted in ("", "eth0", "^docker,lo"):
        verdict = network(*[Network(PLAIN, wanted)] * 2)
        assert faults(verdict) == []
    assert network(*[Network(PLAIN)] * 2).value == "eth0"


def test_docker_first():
    verdict = network(*[Network(PLAIN, "docker0")] * 2)
    assert has_fault(verdict, Status.FAILURE, "NCCL take docker0", "NCCL_SOCKET_IFNAME=eth0")
    on_one_node = network(*[Network(PLAIN, "docker0")] * 2, of=job())
    assert has_fault(on_one_node, Status.WARNING, "docker0")


def test_an_interface_that_one_node_lacks():
    verdict = network(Network((ETH, LO, IB), "ib0"), Network((ETH, LO), "ib0"))
    assert has_fault(verdict, Status.FAILURE, "names none of eth0, lo for rank 1 on n1")


def test_a_slow_interface_beside_a_fast_one():
    verdict = network(*[Network((*PLAIN, *HSN), "eth0")] * 2)
    assert has_fault(verdict, Status.WARNING, "hsn0 is there", "NCCL_SOCKET_IFNAME=hsn0,hsn1")


def test_unequal_interfaces():
    verdict = network(Network((ETH, LO)), Network((Interface("eno1"), LO)))
    assert has_fault(verdict, Status.WARNING, "rank 0 on n0: eth0", "rank 1 on n1: eno1")


# ------------------------------------------------------------------------------------ bandwidth

NOMINAL = """\
[nominal]
latency_us = { value = 2.0, source = "us" }
bandwidth_gb_s = { value = 10.0, source = "us" }
"""


@pytest.mark.parametrize(
    ("latency_us", "gb_s", "count"), [(2.5, 8.0, 0), (9.0, 8.0, 1), (2.5, 3.0, 1), (9.0, 3.0, 2)]
)
def test_bandwidth_against_the_nominal(latency_us, gb_s, count, tmp_path):
    facts = [Speed(1, latency_us, gb_s), Speed(0, latency_us, gb_s)]
    two = job(["n0", "n1"], "srun", site=site(tmp_path, NOMINAL))
    verdict = judged(bandwidth.CHECK, facts, two)
    assert len(verdict.problems) == count
    assert verdict.expected == "2 us, 10 GB/s"
    assert verdict.value.startswith("MPI's own: 8 B ")  # mpistrat's calls take other times
    one_node = job(site=two.site)
    assert faults(judged(bandwidth.CHECK, facts, one_node)) == []


def test_nominal_values_of_gpus_are_not_mpis(tmp_path):
    gpus = NOMINAL + '[node]\ngpus = { value = 4, source = "us" }\n'
    two = job(["n0", "n1"], "srun", site=site(tmp_path, gpus))
    assert faults(judged(bandwidth.CHECK, [Speed(1, 99.0, 0.1)] * 2, two)) == []
    slow = [Transport("OFI", bandwidth_gb_s=2.0)] * 2
    assert has_fault(judged(nccl_transport.CHECK, slow, two), Status.WARNING, "2.0 GB/s", "10")


# ----------------------------------------------------------------------------------------- NCCL

LOG = """\
n0:12:12 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so.
n0:12:12 [0] NCCL INFO NET/IB : No device found.
n0:12:12 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
n0:12:12 [0] NCCL INFO Using network Socket
"""


def test_the_network_in_a_log():
    assert network_in_log(LOG) == "Socket"
    assert (
        network_in_log(LOG.replace("network Socket", "network AWS Libfabric")) == "AWS Libfabric"
    )
    assert network_in_log("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB") == "IB"
    assert not network_in_log("")


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        (Transport("Socket", has_fast=True), ["uses sockets"]),
        (Transport("Socket", "AWS Libfabric"), ["uses Socket", "AWS Libfabric, as NCCL_NET"]),
        (Transport("", "OFI", "NcclError: invalid usage"), ["invalid usage", "by OFI"]),
    ],
)
def test_nccl_on_the_wrong_network(transport, words):
    verdict = judged(nccl_transport.CHECK, [transport] * 2, TWO_NODES)
    assert has_fault(verdict, Status.FAILURE, *words)


def test_nccl_that_is_well():
    for transport in (Transport("Socket"), Transport("AWS Libfabric", "AWS Libfabric", "", True)):
        assert faults(judged(nccl_transport.CHECK, [transport] * 2, TWO_NODES)) == []
