# SPDX-License-Identifier: GPL-2.0-only
# wq for NixOS: tools are libwq and wqctl, and module is for one kernel, for instance
#	boot.extraModulePackages = [
#	  (import .../tools/pkg/wq.nix { inherit pkgs; kernel = config.boot.kernelPackages.kernel; }).module
#	];
# tests/packaging evaluates this with a stand-in for nixpkgs, and runs the phases.  Nix did not build
# it.
{ pkgs ? import <nixpkgs> { }, kernel ? pkgs.linux }:
let
  inherit (pkgs) lib stdenv;
  lines = lib.splitString "\n" (builtins.readFile ../../module/dev/main.c);
  found = map (builtins.match "MODULE_VERSION\\(\"(.*)\"\\);") lines;
  common = {
    version = lib.head (lib.head (lib.filter (match: match != null) found));
    src = lib.cleanSource ../..;
    postPatch = "patchShebangs .";
    meta.description = "Keyed work queues in the Linux kernel";
  };
  kbuild = "make -j$NIX_BUILD_CORES -C ${kernel.dev}/lib/modules/${kernel.modDirVersion}/build M=$PWD CONFIG_KUNIT=";
in
{
  tools = stdenv.mkDerivation (common // {
    pname = "wq";
    nativeBuildInputs = [ pkgs.pkg-config pkgs.python3 ];
    buildInputs = [ pkgs.jansson pkgs.ncurses ];
    buildPhase = "make -C tools/lib PREFIX=$out && make -C tools/wqctl PREFIX=$out";
    installPhase = "make install-tools PREFIX=$out";
  });
  module = stdenv.mkDerivation (common // {
    pname = "wq-module";
    nativeBuildInputs = kernel.moduleBuildDependencies ++ [ pkgs.python3 ];
    buildPhase = "${kbuild} WQ_BTF=${kernel.dev}/vmlinux modules";
    installPhase = "${kbuild} INSTALL_MOD_PATH=$out INSTALL_MOD_DIR=updates modules_install";
  });
}
