// Reads features, descriptors and matches with the loops of openMVG's loadFeatsFromFile,
// loadDescsFromBinFile and matching::Load, and prints them.
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

struct Feature {
  float x, y, scale, orientation;
};

std::istream& operator>>(std::istream& in, Feature& f) {
  return in >> f.x >> f.y >> f.scale >> f.orientation;
}

int main(int, char** arguments) {
  const std::string directory = arguments[1], stem = arguments[2], matches = arguments[3];
  std::ifstream features_file(directory + "/" + stem + ".feat");
  const std::vector<Feature> features{std::istream_iterator<Feature>(features_file), {}};
  std::ifstream file(directory + "/" + stem + ".desc", std::ios::binary);
  std::size_t count = 0;
  file.read(reinterpret_cast<char*>(&count), sizeof(std::size_t));
  std::vector<std::array<unsigned char, 128>> descriptors(count);
  for (auto& descriptor : descriptors)
    file.read(reinterpret_cast<char*>(descriptor.data()), descriptor.size());
  if (!file || file.peek() != std::ifstream::traits_type::eof()) return 1;
  std::cout.precision(9);
  std::cout << features.size() << " " << count << "\n";
  for (const auto& f : features)
    std::cout << f.x << " " << f.y << " " << f.scale << " " << f.orientation << "\n";
  for (const auto& descriptor : descriptors) {
    for (const int value : descriptor) std::cout << value << " ";
    std::cout << "\n";
  }
  std::ifstream stream(directory + "/" + matches);
  std::size_t i, j, number;
  while (stream >> i >> j >> number) {
    std::cout << i << " " << j << " " << number;
    for (std::size_t k = 0; k < number; ++k) {
      std::uint32_t a, b;
      stream >> a >> b;
      std::cout << " " << a << " " << b;
    }
    std::cout << "\n";
  }
  return 0;
}
