package collective

// joined is the share of a GPU's NVLinks that lead to the other members of its group in its node:
// all of them through a switch. Without one they are spread evenly over the other GPUs of the domain,
// or as the mesh says: what the GPU of such a group with the fewest has, for which the others wait. As
// many rings run through a GPU, one way each, as it has links to the others (DGX-1: "three interwoven
// rings of single NVLink connections", both ways).
func (f *Fabric) joined(g Group) float64 {
	d := f.domain()
	if f.Switched || d <= 1 {
		return 1
	}
	if int64(len(f.Mesh)) == d {
		if fewest, most := f.fewestLinks(g), f.mostLinks(); fewest > 0 {
			return float64(fewest) / float64(most)
		}
	}
	return float64(g.PerNode-1) / float64(d-1) // of groups that no links join, too
}

// fewestLinks is how many NVLinks to its own group the GPU has that has fewest, of all groups like g
// in a domain.
func (f *Fabric) fewestLinks(g Group) int64 {
	d, stride := f.domain(), max(g.Stride, 1)
	fewest := f.mostLinks()
	for first := int64(0); first+(g.PerNode-1)*stride < d; first++ {
		if first/stride%g.PerNode != 0 { // a later member of a group
			continue
		}
		for i := range g.PerNode {
			links := int64(0)
			for k := range g.PerNode {
				links += f.Mesh[first+i*stride][first+k*stride]
			}
			fewest = min(fewest, links)
		}
	}
	return fewest
}

// mostLinks is how many NVLinks the GPU of a mesh has that has most.
func (f *Fabric) mostLinks() int64 {
	most := int64(0)
	for _, row := range f.Mesh {
		links := int64(0)
		for _, n := range row {
			links += n
		}
		most = max(most, links)
	}
	return most
}
