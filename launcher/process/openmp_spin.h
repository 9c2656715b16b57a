// How long threads of OpenMP that wait for one another spin before they sleep.
//
// OpenMP's default is milliseconds. On cores that other programs share, the thread that is waited
// for may not run meanwhile, and every parallel loop pays for it: 12 tiny steps of two ranks took
// 9.1 s instead of 0.8 s on two busy cores, an evaluation by two threads 17 s instead of 2.2 s.

#pragma once

namespace anyorder::launcher {

// For the environment of a process; read before its main() begins.
inline constexpr char kShortSpin[] = "GOMP_SPINCOUNT=1000";

// Makes this process one with kShortSpin: starts it again, in place and with the same command line,
// unless its environment says how long to spin. Call it before anything is read or written.
void EnsureShortSpin();

}  // namespace anyorder::launcher
