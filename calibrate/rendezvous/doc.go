// Package rendezvous brings the processes of one calibration together: it reads rank
// and world from the launcher's environment (torchrun, srun, mpirun) and lets all
// processes exchange small messages over TCP, through the one of rank 0.
//
// It is the only package that opens a connection, and only to the address that the
// launcher names. calibrate/probe uses it through its interface Peers, and comes next.
package rendezvous
