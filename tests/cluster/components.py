"""Commands and configuration files of the cluster's components, as texts. Nothing here starts or waits.

All paths are those inside the cluster's machine. It has its own network, so the ports are the usual ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster import binaries, pki
from cluster.layout import API_PORT, DOMAIN, HOME, NODE, POD_NETWORK, SERVICE_NETWORK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.binaries import Binaries
    from cluster.layout import Layout

PAUSE_IMAGE = "localhost/pause:1"
ETCD_URL = "http://127.0.0.1:2379"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
ISSUER = f"https://kubernetes.default.svc.{DOMAIN}"
CNI_CONFIG = HOME / "cni"


@dataclass(frozen=True, kw_only=True)
class Component:
    """One component of the cluster.

    Attributes:
        name: name in messages and of the log file.
        argv: command; its first word identifies the process.
        files: texts of the files that it reads, by path below the cluster's folder.
    """

    name: str
    argv: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """Return the path of the program, which identifies the process."""
        return self.argv[0]


def etcd(programs: Binaries) -> Component:
    """Return etcd. It does not sync to disk: its data need not survive a power failure."""
    flags = {
        "data-dir": HOME / "etcd",
        "listen-client-urls": ETCD_URL,
        "advertise-client-urls": ETCD_URL,
        "listen-peer-urls": "http://127.0.0.1:2380",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    return _component("etcd", programs.inside(binaries.ETCD, "server"), flags)


def api_server(programs: Binaries, layout: Layout) -> Component:
    """Return the API server, with the aggregation layer's flags."""
    certificate = pki.api_server(layout).file
    flags = {
        "advertise-address": layout.node_address,
        "secure-port": API_PORT,
        "etcd-servers": ETCD_URL,
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-cluster-ip-range": SERVICE_NETWORK,
        "client-ca-file": pki.file_inside("ca.crt"),
        "tls-cert-file": pki.file_inside(f"{certificate}.crt"),
        "tls-private-key-file": pki.file_inside(f"{certificate}.key"),
        "service-account-issuer": ISSUER,
        "service-account-key-file": pki.file_inside("service-accounts.pub"),
        "service-account-signing-key-file": pki.file_inside("service-accounts.key"),
        "kubelet-certificate-authority": pki.file_inside("ca.crt"),
        "kubelet-client-certificate": pki.file_inside(f"{certificate}.crt"),
        "kubelet-client-key": pki.file_inside(f"{certificate}.key"),
        "kubelet-preferred-address-types": "InternalIP",
        "requestheader-client-ca-file": pki.file_inside("ca.crt"),
        "requestheader-allowed-names": pki.FRONT_PROXY.name,
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": pki.file_inside("front-proxy.crt"),
        "proxy-client-key-file": pki.file_inside("front-proxy.key"),
    }
    return _component("kube-apiserver", programs.inside(binaries.KUBERNETES, "kube-apiserver"), flags)


def controller_manager(programs: Binaries) -> Component:
    """Return the controller manager; its host-path provisioner creates the volumes of claims."""
    flags = {
        **_access(pki.CONTROLLER_MANAGER),
        "bind-address": "127.0.0.1",
        "leader-elect": "false",
        "use-service-account-credentials": "true",
        "service-account-private-key-file": pki.file_inside("service-accounts.key"),
        "root-ca-file": pki.file_inside("ca.crt"),
        "enable-hostpath-provisioner": "true",
    }
    return _component("kube-controller-manager", programs.inside(binaries.KUBERNETES, "kube-controller-manager"), flags)


def scheduler(programs: Binaries) -> Component:
    """Return the scheduler."""
    flags = {**_access(pki.SCHEDULER), "bind-address": "127.0.0.1", "leader-elect": "false"}
    return _component("kube-scheduler", programs.inside(binaries.KUBERNETES, "kube-scheduler"), flags)


def containerd() -> Component:
    """Return the container runtime. Its image store is the only folder that the next boot reuses."""
    file = "containerd.toml"
    argv = ("/usr/bin/containerd", "--config", str(HOME / file), "--log-level", "warn")
    return Component(name="containerd", argv=argv, files={file: CONTAINERD, "cni/10-pods.conflist": json.dumps(CNI)})


def kubelet(programs: Binaries, layout: Layout) -> Component:
    """Return the kubelet."""
    member = pki.kubelet(layout)
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": pki.file_inside("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "clusterDNS": [layout.node_address],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        "resolvConf": "/dev/null",
        "syncFrequency": "10s",
        "tlsCertFile": pki.file_inside(f"{member.file}.crt"),
        "tlsPrivateKeyFile": pki.file_inside(f"{member.file}.key"),
        "volumePluginDir": str(HOME / "kubelet" / "plugins"),
    }
    flags = {
        "config": HOME / "kubelet.json",
        "kubeconfig": pki.kubeconfig_inside(member),
        "root-dir": HOME / "kubelet",
        "hostname-override": NODE,
        "node-ip": layout.node_address,
    }
    program = programs.inside(binaries.KUBERNETES, "kubelet")
    return _component("kubelet", program, flags, files={"kubelet.json": json.dumps(config, indent=1)})


def proxy(programs: Binaries) -> Component:
    """Return kube-proxy, which makes services reachable with iptables rules in the cluster's own network."""
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": pki.kubeconfig_inside(pki.PROXY)},
        "clusterCIDR": POD_NETWORK,
        # Do not change the limits of this machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        "hostnameOverride": NODE,
        "iptables": {"minSyncPeriod": "0s"},
        "mode": "iptables",
        "oomScoreAdj": 0,
    }
    program = programs.inside(binaries.KUBERNETES, "kube-proxy")
    flags = {"config": HOME / "proxy.json"}
    return _component("kube-proxy", program, flags, files={"proxy.json": json.dumps(config, indent=1)})


def coredns(programs: Binaries, layout: Layout) -> Component:
    """Return the pods' DNS server. It resolves only names of the cluster."""
    access = f"kubeconfig {pki.kubeconfig_inside(pki.ADMIN)} {pki.CONTEXT}"
    zone = f"kubernetes {DOMAIN} in-addr.arpa {{\n {access}\n ttl 1\n}}"
    corefile = f".:53 {{\nbind {layout.node_address}\nerrors\nready 127.0.0.1:8181\n{zone}\n}}\n"
    argv = (programs.inside(binaries.COREDNS, "coredns"), "-conf", str(HOME / "Corefile"))
    return Component(name="coredns", argv=argv, files={"Corefile": corefile})


def _component(
    name: str, program: str, flags: Mapping[str, object], *, files: Mapping[str, str] | None = None
) -> Component:
    return Component(
        name=name, argv=(program, *(f"--{flag}={value}" for flag, value in flags.items())), files=files or {}
    )


def _access(member: pki.Member) -> dict[str, object]:
    kubeconfig = pki.kubeconfig_inside(member)
    return dict.fromkeys(("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"), kubeconfig)


# restrict_oom_score_adj: needed to create pods without CAP_SYS_RESOURCE, as in containers and sandboxes.
CONTAINERD = f"""version = 2
root = "{HOME}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs"]
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{CNI_CONFIG}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""
CNI = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(HOME / "addresses"),
                "ranges": [[{"subnet": POD_NETWORK}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
