"""Create the cluster's certificates and kubeconfigs with openssl, which needs no Python library."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.layout import API_SERVICE, DOMAIN, HOME, NODE
from cluster.shell import bare_environment, run, write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cluster.layout import Layout

DAYS = 30
CONTEXT = "ptjob-cluster"
EXTENSIONS = """
[req]
distinguished_name = name
prompt = no
[name]
{name}
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, digitalSignature, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth, clientAuth
{alternatives}
"""


@dataclass(frozen=True, kw_only=True)
class Member:
    """Subject of a certificate: a user of the API, or a server with its DNS names and addresses.

    Attributes:
        file: base name of the files: certificate FILE.crt, key FILE.key, and a user's FILE.kubeconfig.
        name: common name of the certificate; for the API server, the user's name.
        group: organisation of the certificate; for the API server, the user's group.
        reached_by: DNS names and addresses of a server.
    """

    file: str
    name: str
    group: str = ""
    reached_by: tuple[str, ...] = ()


AUTHORITY = Member(file="ca", name="ptjob-cluster")
ADMIN = Member(file="admin", name="admin", group="system:masters")
CONTROLLER_MANAGER = Member(file="controller-manager", name="system:kube-controller-manager")
SCHEDULER = Member(file="scheduler", name="system:kube-scheduler")
PROXY = Member(file="proxy", name="system:kube-proxy")
FRONT_PROXY = Member(file="front-proxy", name="front-proxy-client")
USERS = (ADMIN, CONTROLLER_MANAGER, SCHEDULER, PROXY)


def api_server(layout: Layout) -> Member:
    """Return the subject of the API server's certificate, which is also its client certificate for the kubelet."""
    names = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{DOMAIN}",
        "localhost",
    )
    addresses = ("127.0.0.1", API_SERVICE, layout.node_address)
    return Member(file="api-server", name="kube-apiserver", group="system:masters", reached_by=(*names, *addresses))


def kubelet(layout: Layout) -> Member:
    """Return the subject of the kubelet's certificate, as server and as user."""
    return Member(
        file="kubelet", name=f"system:node:{NODE}", group="system:nodes", reached_by=(NODE, layout.node_address)
    )


def make_all(layout: Layout) -> None:
    """Create a new authority, all certificates, the service accounts' key and all kubeconfigs."""
    folder = layout.home / "pki"
    folder.mkdir(mode=0o700)
    _certify(folder, AUTHORITY, authority=True)
    for member in (*USERS, FRONT_PROXY, api_server(layout), kubelet(layout)):
        _certify(folder, member)
    for member in (*USERS, kubelet(layout)):
        access = kubeconfig(layout, _certified(layout, member))
        write(layout.home / f"{member.file}.kubeconfig", json.dumps(access, indent=1))
    key = folder / "service-accounts.key"
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key], timeout=30)
    run(["openssl", "pkey", "-in", key, "-pubout", "-out", folder / "service-accounts.pub"], timeout=30)


def file_inside(name: str) -> str:
    """Return the path of a PKI file inside the cluster's machine."""
    return str(HOME / "pki" / name)


def kubeconfig_inside(member: Member) -> str:
    """Return the path of a user's kubeconfig inside the cluster's machine."""
    return str(HOME / f"{member.file}.kubeconfig")


def kubeconfig(layout: Layout, user: Mapping[str, str], *, namespace: str = "default") -> dict[str, object]:
    """Return a self-contained kubeconfig, with the authority and a user's certificate or token."""
    cluster = {"server": layout.api_url, "certificate-authority-data": _carried(layout, "ca.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}}],
    }


def _certified(layout: Layout, member: Member) -> dict[str, str]:
    return {
        "client-certificate-data": _carried(layout, f"{member.file}.crt"),
        "client-key-data": _carried(layout, f"{member.file}.key"),
    }


def _carried(layout: Layout, name: str) -> str:
    return base64.b64encode((layout.home / "pki" / name).read_bytes()).decode()


def _certify(folder: Path, member: Member, *, authority: bool = False) -> None:
    file = member.file
    write(folder / f"{file}.cnf", _request(member))
    kind = "authority" if authority else "member"
    signer = [] if authority else ["-CA", "ca.crt", "-CAkey", "ca.key"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", f"{file}.key"]
    certificate = ["-x509", "-days", str(DAYS), "-config", f"{file}.cnf", "-extensions", kind, "-out", f"{file}.crt"]
    run(["openssl", "req", *certificate, *signer, *key], cwd=folder, env=bare_environment(folder), timeout=30)


def _request(member: Member) -> str:
    name = [f"O = {member.group}"] if member.group else []
    kinds = ["IP" if entry.replace(".", "").isdigit() else "DNS" for entry in member.reached_by]
    entries = ", ".join(f"{kind}:{entry}" for kind, entry in zip(kinds, member.reached_by, strict=True))
    alternatives = f"subjectAltName = {entries}" if entries else ""
    return EXTENSIONS.format(name="\n".join([*name, f"CN = {member.name}"]), alternatives=alternatives)
